"""Signing in at a provider of OpenID Connect, beside passwords."""
