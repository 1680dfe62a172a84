"""OpenTelemetry: a span for every request, where its packages are installed and the operator asks for it.

Where spans go is set as everywhere with OpenTelemetry: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME and the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app import version
from app.errors import SettingsError
from app.operations.requests import Span

MISSING = "CAIRN_TRACING needs OpenTelemetry's packages: pip install cairn[tracing]."


def request_spans() -> Span:
    """Begins to send spans. Raises SettingsError where the packages are missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise SettingsError(MISSING) from error
    provider = TracerProvider(resource=Resource.create({"service.version": version()}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return spans_of(provider)


def spans_of(provider: object) -> Span:
    """Spans that this OpenTelemetry tracer provider makes."""
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

    assert isinstance(provider, TracerProvider)
    tracer = provider.get_tracer("cairn")

    @contextmanager
    def span(method: str, request_id: str) -> Iterator[Callable[[str, int], None]]:
        with tracer.start_as_current_span(method, kind=SpanKind.SERVER) as current:
            current.set_attribute("http.request.method", method)
            current.set_attribute("cairn.request_id", request_id)

            def ended(route: str, status: int) -> None:
                current.update_name(f"{method} {route}")
                current.set_attribute("http.route", route)
                current.set_attribute("http.response.status_code", status)
                if status >= 500:
                    current.set_status(Status(StatusCode.ERROR))

            yield ended

    return span
