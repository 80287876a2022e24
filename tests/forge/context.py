# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image opened by Volatility in this process once; plugins and helpers reuse it.

All images share one symbol directory and one cache, which go when the process ends. Volatility's caches keep
a context in memory until `remembered.forget`.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import types
import urllib.parse
import urllib.request
from typing import Any, Callable, Dict, FrozenSet, Iterator, Optional, Sequence, Tuple

import volatility3.symbols
from volatility3 import framework, schemas
from volatility3.framework import automagic, constants, contexts, interfaces, plugins
from volatility3.framework.automagic.construct_layers import ConstructionMagic
from volatility3.framework.automagic.symbol_cache import SymbolCacheMagic
from volatility3.framework.automagic.windows import WindowsIntelStacker
from volatility3.framework.interfaces.configuration import HierarchicalDict
from volatility3.framework.symbols import intermed
from volatility3.plugins.windows import pslist

from winstacks.memory import tables as own_tables

from . import config, opener
from .dump import Image
from .kept import keep

_home: Optional[pathlib.Path] = None
_listed: FrozenSet[pathlib.Path] = frozenset()
_ASKED_FOR = (
    "_EPROCESS",
    "_TEB",
    "_KPCR",
    "_KUSER_SHARED_DATA",
    "_MMVAD",
    "_MMVAD_SHORT",
    "_OBJECT_TYPE",
    "_OBJECT_HEADER",
    "_OBJECT_HEADER_CREATOR_INFO",
    "_OBJECT_HEADER_NAME_INFO",
    "_FILE_OBJECT",
    "_POOL_HEADER",
)
"""The types that lead to nearly all others which the plugins need."""
_types: Dict[Tuple[str, bytes], Dict[str, Any]] = {}


def symbol_directory() -> pathlib.Path:
    """This process' own symbol directory, set as Volatility's first one; offline from here on."""
    global _home
    if _home is None:
        _home = pathlib.Path(tempfile.mkdtemp(prefix="forge-"))
        atexit.register(shutil.rmtree, str(_home), ignore_errors=True)
        for name in ("symbols", "cache"):
            (_home / name).mkdir()
        constants.OFFLINE = True
        constants.CACHE_PATH = str(_home / "cache")
        # Downloaded tables lie in other folders of Volatility's.
        shipped = pathlib.Path(framework.__file__).parent / "symbols"
        volatility3.symbols.__path__ = [str(_home / "symbols"), str(shipped)]
        schemas.validate = functools.partial(_validated, schemas.validate)
        tables = intermed.IntermediateSymbolTable
        setattr(tables, "file_symbol_url", functools.partial(_table_urls, tables.file_symbol_url))  # noqa: B010
        intermed.json = types.SimpleNamespace(load=lambda stream: _parsed(stream.read()))
        opener.share()
        own_tables._structure = functools.partial(_structure, own_tables._structure)
    return _home / "symbols"


class _Table(Dict[str, Any]):
    """A symbol table that images of one kernel share, as Volatility changes none.

    Attributes:
        fields: where members lie, by structure and path, as far as images have asked
    """

    def __init__(self, text: str) -> None:
        super().__init__(json.loads(text))
        self.fields: Dict[Tuple[str, str], Any] = {}


_tables: Dict[bytes, _Table] = {}


def _parsed(text: str) -> _Table:
    """Returns a table of this text: one that was parsed before if it is among the last ones."""
    return keep(_tables, hashlib.sha256(text.encode()).digest(), lambda: _Table(text))


def _structure(make: Callable[..., Any], context: Any, table: str, tell: Any, name: str) -> Any:
    """Makes a structure of a table. Volatility's way to a member is long: images of one kernel go it once."""
    structure = make(context, table, tell, name)
    content = _content(context, table) if structure is not None else None
    if isinstance(content, _Table):
        fields, look_up = content.fields, structure._lookup

        def shared(path: str) -> Any:
            field = fields.get((name, path)) or look_up(path)
            if field is not None:
                fields[name, path] = field
            return field

        structure._lookup = shared
    return structure


def _content(context: Any, table: str) -> Any:
    """Returns the content of a symbol table; None for one of another kind than files have."""
    return getattr(getattr(context.symbol_space[table], "_delegate", None), "_json_object", None)


@functools.lru_cache(maxsize=None)
def _own_tables(find: Callable[..., Iterator[str]], sub_path: str, filename: str) -> Tuple[str, ...]:
    return tuple(find(sub_path, filename))


def _table_urls(
    find: Callable[..., Iterator[str]], sub_path: str, filename: Optional[str] = None
) -> Iterator[str]:
    """Yields where a symbol table is. A table of Volatility itself is looked for once."""
    if filename and sub_path == "windows" and os.sep not in filename:
        yield from _own_tables(find, sub_path, filename)
    else:
        yield from find(sub_path, filename)


def _validated(validate: Callable[..., bool], table: Dict[str, Any], use_cache: bool = True) -> bool:
    """Checks a table against its schema where a test asks for it: that takes as long as to read it."""
    return use_cache or validate(table, use_cache)


class Opened:
    """`context` and the name of its `kernel` module, as every helper of ours wants them."""

    def __init__(self, context: interfaces.context.ContextInterface, kernel: str) -> None:
        self.context = context
        self.kernel = kernel

    @functools.cached_property
    def image(self) -> Any:
        """The library's view of the image."""
        from winstacks.memory.image import Image as OpenedImage

        return OpenedImage(self.context, self.kernel)

    @property
    def layer(self) -> Any:
        """The kernel's layer."""
        return self.context.layers[self.context.modules[self.kernel].layer_name]

    def construct(self, plugin: Any, **options: Any) -> Any:
        """A plugin on this context, without another run of the automagic."""
        base = interfaces.configuration.path_join("plugins", plugin.__name__)
        module = self.context.modules[self.kernel]
        config = {
            "kernel": self.kernel,
            "kernel.layer_name": module.layer_name,
            "kernel.symbol_table_name": module.symbol_table_name,
        }
        for name, value in {**config, **options}.items():
            self.context.config[interfaces.configuration.path_join(base, name)] = value
        for requirement in plugin.get_requirements():
            path = interfaces.configuration.path_join(base, requirement.name)
            if path in self.context.config and requirement.name not in {**config, **options}:
                del self.context.config[path]
        return plugin(self.context, base)

    def rows(self, plugin: Any, **options: Any) -> list[tuple[int, dict[str, Any]]]:
        """What a plugin prints: (depth from 0, column name to value) of every row in order."""
        return printed(self.construct(plugin, **options))


def printed(plugin: Any) -> list[tuple[int, dict[str, Any]]]:
    """Returns what a plugin prints: (depth from 0, column name to value) of every row in order."""
    grid = plugin.run()
    names = [column.name for column in grid.columns]
    rows: list[tuple[int, dict[str, Any]]] = []
    grid.populate(lambda node, _: rows.append((node.path_depth - 1, dict(zip(names, node.values)))), None)
    return rows


def table_of(opened: Opened) -> Dict[str, Any]:
    """Returns the parsed table of the kernel's symbols, which other images do not share from here on."""
    name = opened.context.modules[opened.kernel].symbol_table_name
    version: Any = getattr(opened.context.symbol_space[name], "_delegate")  # noqa: B009
    table: Dict[str, Any] = copy.deepcopy(dict(version._json_object))
    version._json_object = table
    return table


def open_image(image: Image, directory: pathlib.Path, name: str = "image.dmp") -> Opened:
    """Saves an image in a directory and opens it. Volatility is given its layers and its kernel.

    Args:
        image: the image
        directory: where its file goes
        name: of the file, `.raw` or `.dmp`
    """
    path = _save(image, directory, name)
    context = _new_context(path)
    options = HierarchicalDict(config.values(image, path, symbol_directory()))
    context.config.splice(interfaces.configuration.path_join("plugins", pslist.PsList.__name__), options)
    _list_tables(context)
    return _construct(context, [ConstructionMagic(context, "automagic.ConstructionMagic")])


def _list_tables(context: contexts.Context) -> None:
    """Has Volatility list the symbol tables, if there are others in our directory than when it last did."""
    global _listed
    files = frozenset(symbol_directory().rglob("*.json*"))
    if files != _listed:
        magic = SymbolCacheMagic(context, "automagic.SymbolCacheMagic")
        magic(context, "plugins", None)
        _listed = files


def find_image(image: Image, directory: pathlib.Path, name: str = "image.dmp") -> Opened:
    """Saves an image in a directory and opens it. Volatility searches the file for page tables and kernel.

    That takes up to ten times as long as `open_image`.
    """
    return open_file(_save(image, directory, name))


def open_raw(image: Image, directory: pathlib.Path) -> Opened:
    """Saves an image in a directory, as pages without a header where it has 64 bits, and opens it.

    In pages of 32 bits Volatility does not find the page tables of all versions: those are crash dumps.
    """
    return open_image(image, directory, "image.raw" if image.bits == 64 else "image.dmp")


def open_truncated(image: Image, directory: pathlib.Path) -> Opened:
    """Saves an image in a directory without its last third, and opens it."""
    path = _save(image, directory, "truncated.raw")
    os.truncate(path, path.stat().st_size // 3 * 2)
    return open_file(path)


def _save(image: Image, directory: pathlib.Path, name: str) -> pathlib.Path:
    """Saves an image, and its tables in the symbol directory."""
    image.install(symbol_directory())
    return image.save(directory / name)


def open_file(path: pathlib.Path) -> Opened:
    """Opens an image file whose tables are in the symbol directory; Volatility searches it."""
    context = _new_context(path)
    magics = automagic.choose_automagic(automagic.available(context), pslist.PsList)
    with _told_of_page_tables(path):
        return _construct(context, magics)


def _new_context(path: pathlib.Path) -> contexts.Context:
    symbol_directory()
    framework.require_interface_version(2, 0, 0)
    context = contexts.Context()
    context.config["automagic.LayerStacker.single_location"] = path.resolve().as_uri()
    return context


def _construct(context: contexts.Context, magics: Sequence[Any]) -> Opened:
    plugin = plugins.construct_plugin(context, magics, pslist.PsList, "plugins", None, None)
    opened = Opened(context, plugin.config["kernel"])
    _share_types(opened)
    return opened


@contextlib.contextmanager
def _told_of_page_tables(path: pathlib.Path) -> Iterator[None]:
    """Has Volatility look for a crash dump's page tables where the dump's header says that they are.

    It does not ask the header, and looks through 16 MB and more: that takes a second.
    """
    with path.open("rb") as file:
        header = file.read(0x18)
    if header[:4] != b"PAGE":
        yield
        return
    size = 8 if header[4:8] == b"DU64" else 4
    place = int.from_bytes(header[0x10 : 0x10 + size], "little") & ~0xFFF
    known = WindowsIntelStacker.test_sets
    WindowsIntelStacker.test_sets = [(what, tests, [(place, 0x10000)]) for what, tests, _ in known]
    try:
        yield
    finally:
        WindowsIntelStacker.test_sets = known


def _share_types(opened: Opened) -> None:
    """Gives a context the kernel's types that one before it has made from an equal table.

    Volatility makes anew for each context all types that can be reached from the first that is asked for.
    That takes as long as all else that a plugin does on a small image.
    """
    name = opened.context.modules[opened.kernel].symbol_table_name
    space = opened.context.symbol_space
    prefix = name + constants.BANG
    url = opened.context.config[space[name].config_path + ".isf_url"]
    path = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlparse(url).path))
    key = (name, hashlib.sha256(path.read_bytes()).digest())

    def resolve() -> Dict[str, Any]:
        for kind in _ASKED_FOR:
            if space.has_type(prefix + kind):
                space.get_type(prefix + kind)
        return {full: kind for full, kind in space._resolved.items() if full.startswith(prefix)}

    space._resolved.update(keep(_types, key, resolve))
