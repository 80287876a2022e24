# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Golden outputs: what each plugin prints and writes for each kind of image, kept in `data/`.

    python -m tests.golden check [CASE...]      compares; 1 if something differs
    python -m tests.golden update [CASE...]     makes them anew and prints what changed

A case is an image (`cases`) with the commands that are run on it (`matrix`). The plugins run through
Volatility's command line alone (`outputs`), so that the library behind them may move. A file of `data/` holds
the runs of a case: the exit code, the rows, the messages and the files of each. A change of outputs that is
meant is committed with the new files; `compare` says in words which cells changed.

Left out of the texts: names of folders, names of loggers, versions, frames of tracebacks. Of reference data
whose terms name no facts that may be copied, a digest of each run is kept.
"""
