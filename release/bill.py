# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The bill of materials (SBOM) of a release, in the JSON of CycloneDX.

It lists the packages that the wheel installed into an empty environment, with the versions on which the
plugins then ran, and their dependencies. A package does not depend on the packages of its extras.
"""

from __future__ import annotations

import datetime
import hashlib
import pathlib
import re
import uuid
from typing import Any, Dict, Iterable, List

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement

from . import NAME, ReleaseError


def plain(name: str) -> str:
    """Returns the normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def bill(installed: List[Dict[str, Any]], archives_made: Iterable[pathlib.Path], epoch: int) -> str:
    """Returns the bill as text; equal packages, archives and time give an equal text.

    Args:
        installed: the key `installed` of `pip inspect` in an environment with this project's wheel
        archives_made: the archives of the release
        epoch: the time of the commit, in seconds since 1970

    Raises:
        ReleaseError: the environment lacks this project's package
    """
    metadata = {plain(package["metadata"]["name"]): package["metadata"] for package in installed}
    if NAME not in metadata:
        raise ReleaseError(f"{NAME} is not in the environment of which a bill is wanted")
    components = {name: _component(name, package) for name, package in metadata.items() if name != NAME}
    ours = _component(NAME, metadata[NAME])
    ours.type = ComponentType.APPLICATION
    parts = [
        Component(
            name=path.name,
            type=ComponentType.FILE,
            bom_ref=path.name,
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())
            ],
        )
        for path in archives_made
    ]
    ours.components.update(parts)
    bom = Bom(components=components.values())
    bom.metadata.component = ours
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    listed = "\n".join(
        [f"{name} {package['version']}" for name, package in sorted(metadata.items())]
        + [f"{part.name} {sorted(part.hashes)[0].content}" for part in parts]
    )
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, listed)
    components[NAME] = ours
    for name, package in metadata.items():
        needed = set(map(_needed, package.get("requires_dist", []))) & set(components)
        bom.register_dependency(components[name], [components[other] for other in sorted(needed)])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"


def _needed(line: str) -> str:
    """Returns the package that a requirement names; an empty text for a requirement of an extra."""
    requirement = Requirement(line)
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    return plain(requirement.name) if applies else ""


def _component(name: str, metadata: Dict[str, Any]) -> Component:
    license_text = metadata.get("license_expression") or metadata.get("license")
    # Some packages give the whole text of their licence instead of its name.
    licenses = [DisjunctiveLicense(name=license_text)] if license_text and "\n" not in license_text else []
    return Component(
        name=name,
        version=metadata["version"],
        type=ComponentType.LIBRARY,
        bom_ref=f"{name}@{metadata['version']}",
        licenses=licenses,
        purl=PackageURL("pypi", name=name, version=metadata["version"]),
    )
