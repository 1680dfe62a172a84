"""HTTP: health, what this machine can do, preferences, signing in and out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel

from app.api.documents import Plain
from app.api.intake import MAGIC, IntakeLimits
from app.api.preferences import PreferenceFile
from app.security import (
    SESSION_COOKIE,
    SESSION_SECONDS,
    Access,
    TooManyAttempts,
    WrongPassword,
    client_of,
)
from retrieval.library import Library

LOGIN_PAGE = Path(__file__).parent.parent / "ui" / "login.html"


class PreferenceChange(BaseModel):
    """Only the fields that are present change."""

    top_k: int | None = None
    voters: str | None = None
    quote: bool | None = None
    max_tokens: int | None = None
    low_share: float | None = None


def router(library: Library, preferences: PreferenceFile, limits: IntakeLimits) -> APIRouter:
    routes = APIRouter()

    @routes.get("/machine", tags=["machine"])
    def machine() -> Plain:
        """What this machine and this library can do, and what is wrong."""
        return library.doctor()

    @routes.get("/preferences", tags=["machine"])
    def read() -> Plain:
        """How questions are put when a request does not say, and what uploads may be."""
        uploads = {**asdict(limits), "kinds": sorted(MAGIC)}
        return {**asdict(preferences.current), "uploads": uploads}

    @routes.patch("/preferences", tags=["machine"])
    def change(change: PreferenceChange) -> Plain:
        return asdict(preferences.change(**change.model_dump(exclude_unset=True, exclude_none=True)))

    return routes


def sign_in_router(access: Access) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/healthz")
    def healthy() -> Plain:
        return {"status": "ok"}

    @routes.get("/login")
    def login_page() -> Response:
        return _login_page("") if access.has_password else RedirectResponse("/", status_code=303)

    @routes.post("/login")
    async def log_in(request: Request, password: Annotated[str, Form(max_length=1024)] = "") -> Response:
        try:
            session = await run_in_threadpool(access.log_in, password, client_of(request))
        except WrongPassword:
            return _login_page("This is not the password.", 401)
        except TooManyAttempts as wait:
            page = _login_page("Too many wrong attempts. Wait a little, then try again.", 429)
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


def _login_page(problem: str, status: int = 200) -> HTMLResponse:
    """`problem` is one of our own fixed sentences, never what somebody typed."""
    page = LOGIN_PAGE.read_text(encoding="utf-8").replace("<!-- problem -->", problem)
    return HTMLResponse(page, status_code=status, headers={"Cache-Control": "no-store"})
