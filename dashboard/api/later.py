"""Calls of the contract whose behaviour this version does not have yet: the one list of them.

They check the caller like all others and answer 501. A call goes from :data:`NOT_BUILT` in the change that builds it.
"""

from __future__ import annotations

from typing import NoReturn

from django.http import HttpRequest
from ninja import Router

from dashboard.api.answers import Error
from dashboard.api.auth import OPERATOR, SUPPORT, Caller
from dashboard.api.errors import ApiError

router = Router(tags=["not built yet"])

#: (path, who may, what it will do)
NOT_BUILT: tuple[tuple[str, Caller, str], ...] = (
    ("/runs/retry", OPERATOR, "Retry many runs"),
    ("/runs/cancel", OPERATOR, "Cancel many runs"),
    ("/runs/{id}/extend", OPERATOR, "Give a run more time"),
    ("/runs/{id}/note", SUPPORT, "Add a note to a run"),
    ("/dead-letters/replay", OPERATOR, "Replay many dead letters"),
    ("/steps/{id}/approve", OPERATOR, "Approve a step"),
    ("/steps/{id}/reject", OPERATOR, "Reject a step"),
    ("/steps/{id}/skip", OPERATOR, "Skip a step"),
)


def _not_built(request: HttpRequest) -> NoReturn:
    raise ApiError(501, "not_built", "this version of Switchyard does not have this call yet; nothing was changed")


for _path, _who, _summary in NOT_BUILT:
    router.add_api_operation(
        _path,
        ["POST"],
        _not_built,
        auth=_who,
        summary=_summary,
        response={501: Error},
        operation_id=_path.strip("/").replace("/", "_").replace("{id}_", "one_").replace("-", "_"),
    )
