"""HTTP: what this machine can do, preferences, accounts, signing in and out."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import Field

from app.api.dependencies import (
    OwnPreferences,
    RequestLibrary,
    ServerAccounts,
    ServerAuthenticator,
    ServerSettings,
    ServerSignOn,
    api_routes,
)
from app.api.documents import Plain
from app.api.errors import Body, Refused
from app.api.questions import MAX_QUESTION_LENGTH
from app.api.uploads import STAGED_BYTES
from app.auth import SESSION_COOKIE, SESSION_SECONDS, Authenticator, WrongPassword, hash_password
from app.http_security import client_of, set_session
from app.limits.sign_in_limit import TooManyAttempts
from app.preferences import PreferenceFile, Preferences
from app.settings import Settings
from app.single_sign_on.sign_on import SignOn
from app.web.templates import TEMPLATES
from retrieval.accounts import Accounts
from retrieval.extraction.formats import formats_here, suffixes_here
from retrieval.library import Library

log = logging.getLogger("cairn.sign_in")

WRONG, WRONG_OF_TWO, WRONG_TOKEN = "Wrong password.", "Wrong name or password.", "Wrong token."


class PreferenceChange(Body, Preferences):
    """Only the fields that are present change."""


TOO_MANY = "Too many wrong attempts. Wait a moment, then try again."


class PasswordChange(Body):
    old: str = Field(max_length=1024)
    new: str = Field(max_length=1024)


routes = api_routes()
sign_in_routes = APIRouter(include_in_schema=False)


@routes.get("/machine", tags=["machine"])
def machine(library: RequestLibrary) -> Plain:
    """What this machine and this library can do, and what is wrong."""
    return library.maintenance.doctor()


@routes.get("/preferences", tags=["machine"])
def read(preferences: OwnPreferences, settings: ServerSettings) -> Plain:
    """How questions are put when a request does not say, and what uploads may be."""
    return described_preferences(preferences, settings)


@routes.patch("/preferences", tags=["machine"])
def change(preferences: OwnPreferences, change: PreferenceChange) -> Plain:
    return preferences.change(**change.model_dump(exclude_unset=True)).model_dump()


def described_preferences(preferences: PreferenceFile, settings: Settings) -> Plain:
    formats, suffixes = formats_here(), suffixes_here()
    uploads = {
        "file_bytes": settings.max_upload_bytes,
        "files": settings.max_uploads,
        "jobs": settings.max_jobs,
        "staged_bytes": STAGED_BYTES,
        "library_bytes": settings.max_library_bytes,
        "free_disk_bytes": settings.min_free_bytes,
        "kinds": sorted(suffixes),
        "labels": [each.label for each in formats],
        "accept": [*suffixes, *(each.media_type for each in formats)],
    }
    return {**preferences.current.model_dump(), "uploads": uploads, "question_characters": MAX_QUESTION_LENGTH}


def described_account(library: Library, accounts: Accounts, sign_on: SignOn | None) -> Plain:
    plain: dict[str, object] = {"name": library.principal.name, "people": library.collections.people()}
    user_id = library.principal.user_id
    found = None if user_id is None else accounts.by_id(user_id)
    if sign_on is not None and found is not None:
        plain["single_sign_on"] = {
            "title": sign_on.title,
            "linked": sign_on.is_linked(found),
            "has_password": bool(found.password_hash),
            "groups": library.collections.groups(),
        }
    return plain


@routes.get("/account", tags=["account"])
def account(library: RequestLibrary, accounts: ServerAccounts, sign_on: ServerSignOn) -> Plain:
    """Who is signed in, and with whom collections can be shared. `name` is empty while there are no accounts;
    `single_sign_on`, where it is configured, says how the account is linked to it, and the person's groups."""
    return described_account(library, accounts, sign_on)


@routes.post("/account/password", status_code=204, tags=["account"])
async def change_password(
    library: RequestLibrary,
    accounts: ServerAccounts,
    authenticator: ServerAuthenticator,
    change: PasswordChange,
    request: Request,
) -> None:
    """Another password for whoever is signed in. All sessions of theirs end, this one too."""
    if library.principal.user_id is None:
        raise Refused(404, "not_found", "There are no accounts here.")
    try:
        name, client = library.principal.name, client_of(request)
        checked = await authenticator.in_background(authenticator.check_password, name, change.old, client)
        account = await asyncio.wrap_future(checked)
    except WrongPassword:
        raise Refused(403, "wrong_password", "This is not your current password.") from None
    except TooManyAttempts as wait:
        raise Refused(429, "too_many_attempts", "Too many wrong attempts. Wait a moment.", wait.wait_seconds) from None
    hashed = await run_in_threadpool(hash_password, change.new)
    await run_in_threadpool(accounts.set_password_hash, account, hashed)


@sign_in_routes.get("/login")
async def sign_in_page(authenticator: ServerAuthenticator, sign_on: ServerSignOn) -> Response:
    return await authenticator.in_background(login_page, authenticator, sign_on)


@sign_in_routes.post("/login")
async def log_in(
    request: Request,
    authenticator: ServerAuthenticator,
    sign_on: ServerSignOn,
    password: Annotated[str, Form(max_length=1024)] = "",
    name: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    try:
        begun = await authenticator.in_background(authenticator.log_in, password, client_of(request), name)
        session = await asyncio.wrap_future(begun)
    except WrongPassword:
        log.warning("a wrong password, from %s", client_of(request))
        return await authenticator.in_background(login_page, authenticator, sign_on, WRONG, 401)
    except TooManyAttempts as wait:
        log.warning("too many wrong passwords, from %s", client_of(request))
        page = await authenticator.in_background(login_page, authenticator, sign_on, TOO_MANY, 429)
        page.headers["Retry-After"] = str(max(1, round(wait.wait_seconds)))
        return page
    entered = await authenticator.in_background(authenticator.principal_of_session, session)
    log.info("%s signed in, from %s", entered.name if entered and entered.name else "somebody", client_of(request))
    response = RedirectResponse("/", status_code=303)
    set_session(response, session, request, SESSION_SECONDS)
    return response


@sign_in_routes.post("/logout")
async def log_out(request: Request, authenticator: ServerAuthenticator) -> Response:
    await authenticator.in_background(authenticator.log_out, request.cookies.get(SESSION_COOKIE, ""))
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return response


def login_page(
    authenticator: Authenticator, sign_on: SignOn | None, problem: str = "", status: int = 200
) -> HTMLResponse:
    """`sign_on`: single sign-on, offered by its name."""
    has_accounts, has_password = authenticator.has_accounts, authenticator.has_password
    if problem == WRONG:
        problem = WRONG_OF_TWO if has_accounts else WRONG if has_password else WRONG_TOKEN
    page = TEMPLATES.get_template("login.html").render(
        has_accounts=has_accounts,
        has_password=has_password,
        problem=problem,
        sign_on=sign_on.title if sign_on else "",
    )
    return HTMLResponse(page, status_code=status, headers={"Cache-Control": "no-store"})
