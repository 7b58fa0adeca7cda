"""Upload a video: stores the file and submits a run of the example workflow for it."""

from __future__ import annotations

import re
import secrets
from pathlib import PurePath
from typing import Any

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.defaultfilters import filesizeformat
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods

from dashboard.access import actor_of, require_role
from orchestrator.core.errors import SwitchyardError
from orchestrator.engine.artifacts import artifact_store
from orchestrator.engine.submit import submit

WORKFLOW, PACKAGE = "video-upload", "examples.video_upload"
MAX_BYTES = 200 * 1024 * 1024
FORM_BYTES = 64 * 1024  # what the form takes beside the file


class UploadForm(forms.Form):
    """A file and an address to tell."""

    video = forms.FileField(
        error_messages={"required": "Choose a video file first.", "empty": "That file is empty; choose another one."}
    )
    email = forms.EmailField(
        required=False, error_messages={"invalid": "That is not an address, such as ann@example.com."}
    )

    def clean_video(self) -> UploadedFile:
        """The file, if it is not too large."""
        video: UploadedFile = self.cleaned_data["video"]
        if (video.size or 0) > MAX_BYTES:
            raise forms.ValidationError(too_large(video.size or 0))
        return video


def offers(workflow: str) -> bool:
    """Whether runs of the workflow are started by an upload here."""
    return workflow == WORKFLOW and PACKAGE in settings.ORCHESTRATOR.workflows


def too_large(size: int) -> str:
    """What is said of a file that is too large."""
    return f"That file has {filesizeformat(size)}; up to {_limit()} can be uploaded here. Nothing was kept."


def _limit() -> str:
    return filesizeformat(MAX_BYTES).replace(".0", "")


def subject_of(filename: str) -> str:
    """A subject for the run, from the file's name and a few letters that keep two of the same name apart."""
    stem = re.sub(r"[^a-z0-9]+", "-", PurePath(filename.replace("\\", "/")).stem.lower()).strip("-")[:60]
    return f"{stem or 'video'}-{secrets.token_hex(3)}"


@csrf_exempt  # checked in _upload, after the size: the check reads the whole body to disk
@require_http_methods(["GET", "POST"])
@require_role("operator")
def upload(request: HttpRequest) -> HttpResponseBase:
    """The form, and what it sends."""
    if not offers(WORKFLOW):
        raise Http404(f"the workflow package {PACKAGE} is not among ORCHESTRATOR_WORKFLOWS")
    length = request.META.get("CONTENT_LENGTH") or "0"
    if request.method == "POST" and length.isdigit() and int(length) > MAX_BYTES + FORM_BYTES:
        return _page(request, {"errors": [too_large(int(length))]}, 413)
    return _upload(request)


@csrf_protect
def _upload(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request, {"email": request.user.email if request.user.is_authenticated else ""})
    form = UploadForm(request.POST, request.FILES)
    if not form.is_valid():
        said = [str(message) for field in form.errors.values() for message in field]
        return _page(request, {"errors": said, "email": request.POST.get("email", "")}, 422)
    video, email = form.cleaned_data["video"], form.cleaned_data["email"]
    store = artifact_store()
    key = store.store_upload(video, video.name or "")
    try:
        run_id = submit(
            WORKFLOW,
            subject_of(video.name or ""),
            {"source": key} | ({"email": email} if email else {}),
            labels={"uploader": email.lower()} if email else {},  # by which support finds it
            actor=actor_of(request),
        )
    except SwitchyardError as error:
        store.delete_key(key)
        return _page(request, {"errors": [error.message], "email": email}, 422)
    return redirect(f"/runs/{run_id}/")


def _page(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    return render(request, "upload/upload.html", {"limit": _limit(), "layout": "base.html", **context}, status=status)
