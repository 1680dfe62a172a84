"""HTTP: what this machine can do, preferences, accounts, signing in and out."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field

from app.api.dependencies import OwnPreferences, RequestLibrary
from app.api.documents import Plain
from app.api.errors import Refused
from app.api.preferences import PreferenceChange
from app.api.questions import MAX_QUESTION_LENGTH
from app.api.uploads import UploadLimits
from app.auth import SESSION_COOKIE, SESSION_SECONDS, Authenticator, WrongPassword, hash_password
from app.http_security import client_of
from app.limits.sign_in_limit import TooManyAttempts
from app.web.templates import TEMPLATES
from retrieval.auth.accounts import Accounts
from retrieval.extraction.formats import FORMATS, SUFFIXES

WRONG, WRONG_OF_TWO = "Wrong password.", "Wrong name or password."
TOO_MANY = "Too many wrong attempts. Wait a moment, then try again."


class PasswordChange(BaseModel):
    old: str = Field(max_length=1024)
    new: str = Field(max_length=1024)


def router(limits: UploadLimits) -> APIRouter:
    routes = APIRouter()

    @routes.get("/machine", tags=["machine"])
    def machine(library: RequestLibrary) -> Plain:
        """What this machine and this library can do, and what is wrong."""
        return library.doctor()

    @routes.get("/preferences", tags=["machine"])
    def read(preferences: OwnPreferences) -> Plain:
        """How questions are put when a request does not say, and what uploads may be."""
        labels = [each.label for each in FORMATS]
        accept = [*SUFFIXES, *(each.media_type for each in FORMATS)]
        uploads = {**asdict(limits), "kinds": sorted(SUFFIXES), "labels": labels, "accept": accept}
        return {
            **preferences.current.model_dump(),
            "uploads": uploads,
            "question_characters": MAX_QUESTION_LENGTH,
        }

    @routes.patch("/preferences", tags=["machine"])
    def change(preferences: OwnPreferences, change: PreferenceChange) -> Plain:
        return preferences.change(**change.model_dump(exclude_unset=True)).model_dump()

    return routes


def account_router(accounts: Accounts, authenticator: Authenticator) -> APIRouter:
    routes = APIRouter()

    @routes.get("/account", tags=["account"])
    def account(library: RequestLibrary) -> Plain:
        """Who is signed in, and with whom collections can be shared. `name` is empty while there are no accounts."""
        return {"name": library.principal.name, "people": library.people()}

    @routes.post("/account/password", status_code=204, tags=["account"])
    async def change_password(library: RequestLibrary, change: PasswordChange, request: Request) -> None:
        """Another password for whoever is signed in. All sessions of theirs end, this one too."""
        if library.principal.user_id is None:
            raise Refused(404, "not_found", "There are no accounts here.")
        try:
            checked = authenticator.check_password(library.principal.name, change.old, client_of(request))
            account = await asyncio.wrap_future(checked)
        except WrongPassword:
            raise Refused(403, "wrong_password", "This is not your current password.") from None
        except TooManyAttempts as wait:
            raise Refused(
                429, "too_many_attempts", "Too many wrong attempts. Wait a moment.", wait.wait_seconds
            ) from None
        hashed = await run_in_threadpool(hash_password, change.new)
        await run_in_threadpool(accounts.set_password_hash, account, hashed)

    return routes


def sign_in_router(authenticator: Authenticator) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/login")
    async def login_page() -> Response:
        return await authenticator.in_background(_login_page_if_needed, authenticator)

    @routes.post("/login")
    async def log_in(
        request: Request,
        password: Annotated[str, Form(max_length=1024)] = "",
        name: Annotated[str, Form(max_length=200)] = "",
    ) -> Response:
        try:
            begun = await authenticator.in_background(authenticator.log_in, password, client_of(request), name)
            session = await asyncio.wrap_future(begun)
        except WrongPassword:
            return await authenticator.in_background(_login_page, authenticator, WRONG, 401)
        except TooManyAttempts as wait:
            page = await authenticator.in_background(_login_page, authenticator, TOO_MANY, 429)
            page.headers["Retry-After"] = str(max(1, round(wait.wait_seconds)))
            return page
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(
            SESSION_COOKIE,
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    @routes.post("/logout")
    async def log_out(request: Request) -> Response:
        authenticator.log_out(request.cookies.get(SESSION_COOKIE, ""))
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return response

    return routes


def _login_page_if_needed(authenticator: Authenticator) -> Response:
    return _login_page(authenticator) if authenticator.has_password else RedirectResponse("/", status_code=303)


def _login_page(authenticator: Authenticator, problem: str = "", status: int = 200) -> HTMLResponse:
    by_name = authenticator.by_name
    if problem == WRONG and by_name:
        problem = WRONG_OF_TWO
    page = TEMPLATES.get_template("login.html").render(by_name=by_name, problem=problem)
    return HTMLResponse(page, status_code=status, headers={"Cache-Control": "no-store"})
