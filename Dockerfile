# The server alone: no torch, no compiler, no root.
#   docker build -t ink2tex .
#   docker run --rm -p 127.0.0.1:8000:8000 ink2tex
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY ink2tex ink2tex
RUN python -m venv /opt/ink2tex && /opt/ink2tex/bin/pip install --no-cache-dir ".[serve]"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home ink2tex
COPY --from=build /opt/ink2tex /opt/ink2tex
USER 10001
ENV PATH=/opt/ink2tex/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"
# SIGTERM lets the server finish what it accepted.
STOPSIGNAL SIGTERM
ENTRYPOINT ["ink2tex", "serve", "--host", "0.0.0.0", "--port", "8000"]
