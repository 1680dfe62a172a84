"""HTTP: what the page shows first, in one answer instead of five."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.dependencies import OwnPreferences, RequestLibrary
from app.api.documents import Plain
from app.api.machine import described_account, described_preferences
from app.api.uploads import UploadLimits
from app.api.writer_choice import described_writer
from app.settings import Settings
from app.single_sign_on.sign_on import SignOn
from retrieval.accounts import Accounts

SUGGESTED = 3


def router(settings: Settings, limits: UploadLimits, accounts: Accounts, sign_on: SignOn | None = None) -> APIRouter:
    routes = APIRouter()

    @routes.get("/first", tags=["machine"])
    def first(library: RequestLibrary, preferences: OwnPreferences) -> Plain:
        """`account`, `preferences` and `writer` as their own addresses give them, the number of `documents`, and
        `suggestions` of questions."""
        return {
            "account": described_account(library, accounts, sign_on),
            "preferences": described_preferences(preferences, limits),
            "writer": described_writer(settings, library),
            "documents": len(library.documents()),
            "suggestions": [one.to_dict() for one in library.suggestions(SUGGESTED)],
        }

    return routes
