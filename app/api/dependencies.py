"""What routes are given: the library and the preferences of the caller, and what all requests of a server share.

`RequestLibrary` in a route's signature is the caller's view of the library (`storage.catalogue.permissions` decides).
`Server...` is what `build_app` keeps in the app's state.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from app.api.errors import known_parameters
from app.auth import Authenticator
from app.http_security import person_of, principal_of
from app.preferences import PreferenceFile, PreferenceFolder
from app.settings import Settings
from app.single_sign_on.sign_on import SignOn
from retrieval.accounts import Accounts
from retrieval.library import Library


def api_routes(*tags: str) -> APIRouter:
    """A new router for the HTTP API: its prefix, and the check for unknown parameters."""
    return APIRouter(prefix="/api/v1", dependencies=[Depends(known_parameters)], tags=list(tags))


async def request_library(request: Request) -> Library:
    library: Library = request.app.state.library
    return library.as_seen_by(principal_of(request))


def own_preferences(request: Request) -> PreferenceFile:
    """The caller's preferences. FastAPI runs this in a thread, since they may have to be fetched."""
    preferences: PreferenceFolder = request.app.state.preferences
    own = preferences.of(principal_of(request))
    _ = own.current
    return own


async def request_person(request: Request) -> str:
    return person_of(request)


def shared(name: str) -> Any:
    """What the app's state holds under this name."""

    async def of(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(of)


RequestLibrary = Annotated[Library, Depends(request_library)]
OwnPreferences = Annotated[PreferenceFile, Depends(own_preferences)]
Person = Annotated[str, Depends(request_person)]
"""Whose share of the machine the request uses."""
ServerSettings = Annotated[Settings, shared("settings")]
ServerAccounts = Annotated[Accounts, shared("accounts")]
ServerAuthenticator = Annotated[Authenticator, shared("authenticator")]
ServerSignOn = Annotated[SignOn | None, shared("sign_on")]
"""None where single sign-on is not configured."""
