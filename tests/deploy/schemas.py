"""Whether objects are strictly valid: each field is one of Kubernetes or of the resource's definition."""

import kubernetes_validate

from tests.deploy.rendering import Manifest

VERSIONS = kubernetes_validate.utils.all_versions()


def validate(objects: list[Manifest], version: str = VERSIONS[-1]) -> None:
    """Raise ValidationError for the first object that is not valid in a version of Kubernetes."""
    for each in objects:
        kubernetes_validate.validate(each, version, strict=True)
