"""`cairn user`: accounts of the people who share one server. Whoever may run these commands is the administrator."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from app.cli.options import Call
from app.cli.output import say, table, tell, write_json
from retrieval.errors import InvalidRequest

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
StdinOption = Annotated[
    bool, typer.Option("--password-stdin", help="Take the password from stdin instead of making one.")
]


def add(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters a-z, digits, dot, dash, underscore.")],
    password_stdin: StdinOption = False,
) -> None:
    """Make an account. Its password is shown once.

    From the first account on everybody signs in by name, and sees what is theirs or shared with them.
    """
    from app.auth import hash_password

    password, shown = _password(password_stdin)
    with call.library() as library:
        first = not library.accounts.any
        made = library.accounts.create(name, hash_password(password))
        common = sum(not document.owner for document in library.documents.list()) if first else 0
    _write_secret(call, made.name, "password", shown)
    if common:
        tell(
            f"{common} documents have no owner: everybody with an account may read them, nobody but you change them. "
            f"`cairn user adopt {made.name}` makes them {made.name}'s."
        )


def list_(call: Call) -> None:
    """List accounts."""
    with call.library() as library:
        users = library.accounts.list()
    rows = [
        {
            "name": one.name,
            "has_token": one.has_token,
            "has_password": bool(one.password_hash),
            "linked": one.subject is not None,
            "created_at": one.created_at,
        }
        for one in users
    ]
    if call.as_json:
        for row in rows:
            write_json(row)
    elif rows:
        told = ("has_password", "has_token", "linked")
        cells = [
            (str(row["name"]), *("yes" if row[each] else "no" for each in told), str(row["created_at"])[:16])
            for row in rows
        ]
        say(table(("user", "password", "token", "linked", "made"), cells))
    else:
        tell("There are no accounts: one password or token opens all of it. `cairn user add NAME` makes one.")


def password(call: Call, name: NameArgument, password_stdin: StdinOption = False) -> None:
    """Give a user a new password, shown once, and end all of their sessions."""
    from app.auth import hash_password

    secret, shown = _password(password_stdin)
    with call.library() as library:
        one = library.accounts.get(name)
        library.accounts.set_password_hash(one, hash_password(secret))
    _write_secret(call, one.name, "password", shown)


def token(
    call: Call,
    name: NameArgument,
    off: Annotated[bool, typer.Option("--off", help="End the token without making a new one.")] = False,
) -> None:
    """Make a bearer token for a user's programs (HTTP API, MCP, LangChain), shown once. It ends the one before."""
    from app.auth import fresh_token

    made, digest = fresh_token()
    with call.library() as library:
        one = library.accounts.get(name)
        library.accounts.set_token_digest(one, None if off else digest)
    _write_secret(call, one.name, "token", None if off else made)


def link(
    call: Call,
    name: NameArgument,
    subject: Annotated[str, typer.Option("--subject", metavar="ID", help="What the provider calls this person (sub).")],
    issuer: Annotated[
        str | None, typer.Option("--issuer", metavar="URL", help="The provider; default: CAIRN_OIDC_ISSUER.")
    ] = None,
) -> None:
    """Let a user sign in at the provider of single sign-on as well: this subject is this user from now on."""
    issuer = issuer or call.settings().oidc_issuer
    if not issuer:
        raise typer.BadParameter("name the provider with --issuer, or set CAIRN_OIDC_ISSUER.")
    with call.library() as library:
        one = library.accounts.get(name)
        library.accounts.link(one, issuer, subject)
    call.write({"name": one.name, "linked": True}, f"{one.name} is linked.")


def unlink(call: Call, name: NameArgument) -> None:
    """End the link to single sign-on, with the sessions opened through it and the groups that came from there."""
    with call.library() as library:
        one = library.accounts.get(name)
        library.accounts.unlink(one)
    call.write({"name": one.name, "linked": False}, f"{one.name} is no longer linked.")


def adopt(call: Call, name: NameArgument) -> None:
    """Make a user the owner of everything that has none: documents, collections and answers from before accounts."""
    with call.library() as library:
        one = library.accounts.get(name)
        count = library.accounts.transfer_ownership(one)
    call.write({"name": one.name, "documents": count}, f"{count} documents now belong to {one.name}.")


def remove(
    call: Call,
    name: NameArgument,
    give_to: Annotated[
        str | None, typer.Option("--give-to", metavar="NAME", help="Who gets the documents and collections.")
    ] = None,
    delete_documents: Annotated[
        bool, typer.Option("--delete-documents", help="Delete the documents with the account.")
    ] = False,
) -> None:
    """Remove an account, with its questions and answers. It is signed out at once."""
    if give_to is not None and delete_documents:
        raise typer.BadParameter("choose one of --give-to and --delete-documents.")
    with call.library() as library:
        accounts = library.accounts
        one = accounts.get(name)
        heir = accounts.get(give_to) if give_to is not None else None
        if heir is not None:
            if heir.id == one.id:
                raise InvalidRequest("Documents cannot be given to the user who is being removed.")
            accounts.transfer_ownership(heir, one)
        accounts.delete(one, library.documents.delete if delete_documents else None)
        last = not accounts.any
    call.write({"name": one.name, "removed": True}, f"{one.name} has been removed.")
    if last:
        tell("There are no accounts left: one password or token opens all of the library again.")


def _password(from_stdin: bool) -> tuple[str, str | None]:
    """The password, and what of it is to be shown."""
    from app.auth import fresh_password

    if from_stdin:
        return sys.stdin.readline().rstrip("\n"), None
    made = fresh_password()
    return made, made


def _write_secret(call: Call, name: str, kind: str, secret: str | None) -> None:
    shown = f"The {kind} of {name}, shown only this once:\n\n    {secret}\n"
    call.write({"name": name, kind: secret}, f"Done for {name}." if secret is None else shown)
