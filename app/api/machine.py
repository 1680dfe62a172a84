"""HTTP: health, what this machine can do, preferences, accounts, signing in and out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field

from app.api.dependencies import OwnPreferences, Seen
from app.api.documents import Plain
from app.api.errors import Refused
from app.api.uploads import IntakeLimits
from app.auth import SESSION_COOKIE, SESSION_SECONDS, Authenticator, TooManyAttempts, WrongPassword, hash_password
from app.http_security import client_of
from retrieval.extraction.formats import FORMATS, SUFFIXES
from retrieval.library import Library

LOGIN_PAGE = Path(__file__).parent.parent / "web" / "login.html"


class PreferenceChange(BaseModel):
    """Only the fields that are present change."""

    top_k: int | None = None
    voters: str | None = None
    quote: bool | None = None
    max_tokens: int | None = None
    low_share: float | None = None


class PasswordChange(BaseModel):
    old: str = Field(max_length=1024)
    new: str = Field(max_length=1024)


def router(limits: IntakeLimits) -> APIRouter:
    routes = APIRouter()

    @routes.get("/machine", tags=["machine"])
    def machine(library: Seen) -> Plain:
        """What this machine and this library can do, and what is wrong."""
        return library.doctor()

    @routes.get("/preferences", tags=["machine"])
    def read(preferences: OwnPreferences) -> Plain:
        """How questions are put when a request does not say, and what uploads may be."""
        labels = [each.label for each in FORMATS]
        accept = [*SUFFIXES, *(each.media_type for each in FORMATS)]
        uploads = {**asdict(limits), "kinds": sorted(SUFFIXES), "labels": labels, "accept": accept}
        return {**asdict(preferences.current), "uploads": uploads}

    @routes.patch("/preferences", tags=["machine"])
    def change(preferences: OwnPreferences, change: PreferenceChange) -> Plain:
        return asdict(preferences.change(**change.model_dump(exclude_unset=True, exclude_none=True)))

    return routes


def account_router(library: Library, access: Authenticator) -> APIRouter:
    routes = APIRouter()

    @routes.get("/account", tags=["account"])
    def account(seen: Seen) -> Plain:
        """Who is signed in, and with whom collections can be shared. `name` is empty while there are no accounts."""
        return {"name": seen.principal.name, "people": seen.people()}

    @routes.post("/account/password", status_code=204, tags=["account"])
    def change_password(seen: Seen, change: PasswordChange, request: Request) -> None:
        """Another password for whoever is signed in. All sessions of theirs end, this one too."""
        if seen.principal.user_id is None:
            raise Refused(404, "not_found", "There are no accounts here.")
        try:
            access.check_password(seen.principal.user_id, change.old, client_of(request))
        except WrongPassword:
            raise Refused(403, "wrong_password", "This is not the password you have now.") from None
        except TooManyAttempts:
            raise Refused(429, "too_many_attempts", "Too many wrong attempts. Wait a little.") from None
        library.accounts.set_password_hash(library.accounts.named(seen.principal.name), hash_password(change.new))

    return routes


def sign_in_router(access: Authenticator) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/healthz")
    def healthy() -> Plain:
        return {"status": "ok"}

    @routes.get("/login")
    def login_page() -> Response:
        return _login_page(access) if access.has_password else RedirectResponse("/", status_code=303)

    @routes.post("/login")
    async def log_in(
        request: Request,
        password: Annotated[str, Form(max_length=1024)] = "",
        name: Annotated[str, Form(max_length=200)] = "",
    ) -> Response:
        try:
            session = await run_in_threadpool(access.log_in, password, client_of(request), name)
        except WrongPassword:
            wrong = "Name and password do not belong together." if access.by_name else "This is not the password."
            return _login_page(access, wrong, 401)
        except TooManyAttempts as wait:
            page = _login_page(access, "Too many wrong attempts. Wait a little, then try again.", 429)
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
    def log_out(request: Request) -> Response:
        access.log_out(request.cookies.get(SESSION_COOKIE, ""))
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
        return response

    return routes


NAME_FIELD = """<label for="name">Name</label>
<input id="name" name="name" autocomplete="username" autocapitalize="none" required autofocus maxlength="200">"""


def _login_page(access: Authenticator, problem: str = "", status: int = 200) -> HTMLResponse:
    """`problem` is one of our own fixed sentences, never what somebody typed."""
    page = LOGIN_PAGE.read_text(encoding="utf-8").replace("<!-- problem -->", problem)
    if access.by_name:
        page = page.replace(" autofocus", "").replace("<!-- name -->", NAME_FIELD)
    return HTMLResponse(page, status_code=status, headers={"Cache-Control": "no-store"})
