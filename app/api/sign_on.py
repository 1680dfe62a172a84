"""HTTP: the way to the sign-on provider and back, and what follows from the settings. Redirects go to the provider's
own addresses, and to this server's declared one: a request cannot change them."""

from __future__ import annotations

import logging
from typing import Annotated
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from app.api.dependencies import RequestLibrary, ServerAuthenticator, api_routes, shared
from app.api.documents import Plain
from app.api.errors import Refused
from app.api.machine import login_page
from app.auth import Authenticator
from app.errors import SettingsError
from app.http_security import SIGN_ON_PATH, client_of, set_session
from app.settings import Settings
from app.single_sign_on.provider import Client, Provider, SignInFailed, trustworthy
from app.single_sign_on.sign_on import BEGUN_SECONDS, SignOn, allowed_groups
from app.web.templates import TEMPLATES
from retrieval.accounts import Accounts
from retrieval.replicas import CatalogueValues

log = logging.getLogger("cairn.sign_in")

COOKIE = "cairn_sign_in"


def sign_on_of(settings: Settings, accounts: Accounts, values: CatalogueValues) -> SignOn | None:
    """Single sign-on as the settings describe it; None without an issuer. Sends no request. Raises SettingsError naming
    what is missing."""
    issuer = settings.oidc_issuer
    if issuer is None:
        return None
    needed = {"CAIRN_OIDC_CLIENT_ID": settings.oidc_client_id, "CAIRN_OIDC_ADDRESS": settings.oidc_address}
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise SettingsError(f"With CAIRN_OIDC_ISSUER, {missing[0]} is needed too (docs/single-sign-on.md).")
    address = str(settings.oidc_address).rstrip("/")
    if not trustworthy(issuer):
        raise SettingsError("CAIRN_OIDC_ISSUER must begin with https:// (http:// only for a server on this machine).")
    if not trustworthy(address) or urlsplit(address).path or urlsplit(address).query:
        raise SettingsError(
            "CAIRN_OIDC_ADDRESS must be an origin such as https://library.example, without a path "
            "(http:// only for this machine)."
        )
    scopes = settings.oidc_scopes.split()
    if "openid" not in scopes:
        raise SettingsError("CAIRN_OIDC_SCOPES must contain openid.")
    if allowed_groups(settings) and settings.oidc_groups_claim is None:
        raise SettingsError("CAIRN_OIDC_ALLOWED_GROUPS needs CAIRN_OIDC_GROUPS_CLAIM: without it nobody gets in.")
    redirect_uri = f"{address}{SIGN_ON_PATH}/callback"
    client = Client(str(settings.oidc_client_id), settings.oidc_client_secret, redirect_uri, " ".join(scopes))
    return SignOn(Provider(issuer, client), accounts, values, settings, address=address)


Configured = Annotated[SignOn, shared("sign_on")]
"""These routes are there only where single sign-on is configured."""
routes = APIRouter(prefix=SIGN_ON_PATH, include_in_schema=False)
account_routes = api_routes()


@routes.get("")
async def begin(request: Request, sign_on: Configured, authenticator: ServerAuthenticator) -> Response:
    if not sign_on.is_at(request.headers.get("host", "")):  # its cookie would be another host's
        return RedirectResponse(f"{sign_on.address}{SIGN_ON_PATH}", status_code=303)
    try:
        address, browser = await run_in_threadpool(sign_on.begin, client_of(request))
    except SignInFailed as error:
        return await _refused(error, authenticator, sign_on)
    response = RedirectResponse(address, status_code=303, headers={"Cache-Control": "no-store"})
    _remember(response, browser, request)
    return response


@routes.get("/callback")
async def complete(request: Request, sign_on: Configured, authenticator: ServerAuthenticator) -> Response:
    answer = dict(request.query_params)
    try:
        account, linked = await run_in_threadpool(sign_on.complete, answer, request.cookies.get(COOKIE, ""))
    except SignInFailed as error:
        return await _refused(error, authenticator, sign_on)
    # Not a redirect: the browser would hold back the session's cookie, as the way here began at another site.
    page = TEMPLATES.get_template("signed_in.html").render()
    response = HTMLResponse(page, headers={"Cache-Control": "no-store"})
    if not linked:
        seconds = sign_on.session_seconds
        session = await authenticator.in_background(authenticator.open_session, account, seconds)
        set_session(response, session, request, seconds)
    response.delete_cookie(COOKIE, path="/login", httponly=True, samesite="lax")
    return response


@routes.get("/end")
async def end(sign_on: Configured, authenticator: ServerAuthenticator) -> Response:
    """Also out of the provider, which may ask whether this is meant."""
    try:
        there = await run_in_threadpool(sign_on.end_address)
    except SignInFailed as error:
        return await _refused(error, authenticator, sign_on)
    if there is None:
        return RedirectResponse("/login", status_code=303)
    back = {"client_id": sign_on.client_id, "post_logout_redirect_uri": f"{sign_on.address}/login"}
    return RedirectResponse(f"{there}{'&' if '?' in there else '?'}{urlencode(back)}", status_code=303)


@account_routes.post("/account/link", tags=["account"])
def link(library: RequestLibrary, sign_on: Configured, request: Request, response: Response) -> Plain:
    """Link your account to single sign-on: the browser goes to `address` and signs in there."""
    user_id = library.principal.user_id
    if user_id is None:
        raise Refused(404, "not_found", "There are no accounts here.")
    if not sign_on.is_at(request.headers.get("host", "")):
        raise Refused(409, "wrong_host", f"Open {sign_on.address} to do this.")
    try:
        address, browser = sign_on.begin(client_of(request), user_id)
    except SignInFailed as error:
        log.warning("sign-in failed: %s (%s)", error, error.detail)
        raise Refused(502, "sign_in_failed", str(error)) from error
    _remember(response, browser, request)
    return {"address": address}


def _remember(response: Response, browser: str, request: Request) -> None:
    """The way back comes from another site, which a strict cookie would not survive."""
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, browser, max_age=int(BEGUN_SECONDS), path="/login", httponly=True, samesite="lax", secure=secure
    )


async def _refused(error: SignInFailed, authenticator: Authenticator, sign_on: SignOn) -> Response:
    log.warning("sign-in failed: %s (%s)", error, error.detail[:500])
    return await authenticator.in_background(login_page, authenticator, sign_on, str(error), 403)
