"""Calls of the contract whose behaviour this version does not have yet: the one list of them.

They check the caller like all others and answer 501. A call goes from :data:`NOT_BUILT` in the change that builds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from django.http import HttpRequest
from ninja import Router

from dashboard.api.answers import Error
from dashboard.api.auth import OPERATOR, Caller
from dashboard.api.errors import ApiError

router = Router(tags=["not built yet"])

#: (path, who may, what it will do)
NOT_BUILT: tuple[tuple[str, Caller, str], ...] = (
    ("/runs/retry", OPERATOR, "Retry many runs"),
    ("/runs/cancel", OPERATOR, "Cancel many runs"),
    ("/dead-letters/replay", OPERATOR, "Replay many dead letters"),
)


def _refuse(request: HttpRequest) -> NoReturn:
    raise ApiError(501, "not_built", "this version of Switchyard does not have this call yet; nothing was changed")


def _refuse_one(request: HttpRequest, item_id: str) -> NoReturn:
    _refuse(request)


def _handler(path: str) -> Callable[..., NoReturn]:
    if "{item_id}" in path:
        return _refuse_one
    return _refuse


for _path, _who, _summary in NOT_BUILT:
    router.add_api_operation(
        _path,
        ["POST"],
        _handler(_path),
        auth=_who,
        summary=_summary,
        response={501: Error},
        operation_id=_path.strip("/").replace("/", "_").replace("{item_id}_", "one_").replace("-", "_"),
    )
