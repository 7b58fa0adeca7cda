"""A workflow package: ``video_upload.yaml`` defines the workflow, importing this registers its handlers."""

from examples.video_upload import handlers

__all__ = ["handlers"]
