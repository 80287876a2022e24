# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The lines of pages: one for each sentence, and no sentence is too long."""

from __future__ import annotations

import pathlib

import pytest

from tests import sentences
from tests.support.only import only

PAGE = """\
# A heading. Not two

A first sentence, which
goes on. A second one (see 8.1 and e.g. `a. B`).

**3. Bold**
goes on.

* An item. Its second
  sentence: [a. B](c. D).
1. Another!

| a. B | C. D |

```sh
echo a. B
```
"""

BROKEN = """\
# A heading. Not two

A first sentence, which goes on.
A second one (see 8.1 and e.g. `a. B`).

**3. Bold** goes on.

* An item.
  Its second sentence: [a. B](c. D).
1. Another!

| a. B | C. D |

```sh
echo a. B
```
"""


def test_a_line_for_each_sentence() -> None:
    assert sentences.updated(PAGE) == BROKEN
    assert sentences.updated(BROKEN) == BROKEN


def test_code_and_targets_of_links_are_one_word() -> None:
    assert sentences.words("Run `vol -f a b c`, [as said](https://a b c).") == 4


def test_a_long_sentence_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"A short one:\n\n{'word ' * 35}word.\n")
    assert only(sentences.faults(page)).startswith("page.md:3: 36 words: word word")


def test_the_pages_have_lines_and_sentences_as_they_should() -> None:
    assert [fault for path in sentences.files(()) for fault in sentences.faults(path)] == []
