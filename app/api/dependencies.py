"""The library and the preferences of the caller: the only way for a route to get at either.

`RequestLibrary` in a route's signature is the caller's view of the library (`storage.catalogue.permissions` decides);
no route can reach the library as a whole.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request

from app.api.errors import known_parameters
from app.http_security import person_of, principal_of
from app.preferences import PreferenceFile, PreferenceFolder
from retrieval.library import Library


def api_routes(*tags: str) -> APIRouter:
    """A new router for the HTTP API: its prefix, and the check for unknown parameters."""
    return APIRouter(prefix="/api/v1", dependencies=[Depends(known_parameters)], tags=list(tags))


def add_routes(app: FastAPI, *routers: APIRouter) -> None:
    """Add the routes of these routers to the app as they are. `include_router` would analyse each of them again, at
    once and at the first request."""
    for router in routers:
        app.router.routes.extend(router.routes)


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


RequestLibrary = Annotated[Library, Depends(request_library)]
OwnPreferences = Annotated[PreferenceFile, Depends(own_preferences)]
Person = Annotated[str, Depends(request_person)]
"""Whose share of the machine the request uses."""
