# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Records what the command line prints, so that two trees of the plugins can be compared.

    python3 -m tests.record harvest CORPUS           once: the images, options and files of all tests
    python3 -m tests.record replay CORPUS BEFORE --tree TREE --matrix
    ... change the code ...
    python3 -m tests.record replay CORPUS AFTER --tree TREE --matrix
    python3 -m tests.record compare BEFORE AFTER

What a replay runs comes from the corpus and from the options that the plugins themselves state; nothing of
the tree's inside is imported, so that modules may move. `harvest` needs the tests of the tree that it lies
in; the reference data is where the tests look for it (STACKTRACES_SHARED).
"""
