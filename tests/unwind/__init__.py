# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stack walker against the truth: compiled programs, run instruction by instruction in an emulator.

`build` compiles the programs of `programs/`, `image` loads them, `emulator` runs them and keeps a shadow
stack from calls and returns, `survey` walks at every instruction that is met for the first time and compares.
"""
