# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Coverage-guided fuzzing of the decoders, with the targets of `tests.hostile.decoders`.

    python3 -m tests.fuzz std-6.1-x64 1800     one decoder, half an hour of processor time
    python3 -m tests.fuzz heaps 1800           a group: databases, dumps, heaps, lakes, modules, owners, ...
    python3 -m tests.fuzz all 60               all of them at once
    python3 -m tests.fuzz all 60 -seed=1       the same, with the inputs that libFuzzer draws by seed 1
    python3 -m tests.fuzz heaps 180 FOLDER     keeps its inputs in a folder, and begins with what is there
    python3 -m tests.fuzz list

Fuzzing begins with undamaged inputs, and with those that earlier fuzzing kept in `corpus` (see corpus.py).

Needs atheris (Linux, Python 3.11 to 3.13). An input that breaks a decoder is written into the folder `finds`
beside this file, where the tests decode it from then on.
"""
