# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whole machines: a desktop and a server as they are in use, and published techniques planted in them.

    .venv/test/bin/python -m tests.machines

prints what `windows.tracefindings` finds above `low` where nothing is wrong, and which techniques it misses.
All of it was forged by the project itself.
"""
