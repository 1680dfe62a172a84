# Cairn in a container: the same steps as the Makefile, a user without rights, one volume.
#
#   CPU:  docker build -t cairn .
#   GPU:  docker build -t cairn --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 .
#         docker run --gpus all ...
#   For several machines (docs/kubernetes.md): --build-arg EXTRAS=postgresql,s3
#   Run:  docker run -p 7860:7860 -v cairn:/data -e CAIRN_PASSWORD=... cairn
#
# Pin the base by digest in builds of yours (--build-arg BASE=python:3.11-slim-bookworm@sha256:...); extras are pinned as all packages are.
# CUDA comes with that build of torch; the host needs nothing but its driver and the NVIDIA container toolkit.

ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# gcc: on a GPU, kernels of attention are compiled when they are first needed (Triton).
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends make libgomp1 \
 && case "$TORCH_INDEX" in */cpu) ;; *) apt-get install -y --no-install-recommends gcc libc6-dev ;; esac \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home cairn \
 && install -d -o cairn -g cairn /srv/cairn /data

USER 10001
WORKDIR /srv/cairn

# Packages first: they change seldom. torch is taken from its own index; the Makefile keeps a build that is there.
COPY --chown=cairn:cairn requirements.txt Makefile ./
RUN python3 -m venv .venv && .venv/bin/python -m pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' requirements.txt)"
RUN .venv/bin/python -m pip install --no-cache-dir -r requirements.txt

COPY --chown=cairn:cairn pyproject.toml README.md LICENSE ./
COPY --chown=cairn:cairn storage storage
COPY --chown=cairn:cairn model model
COPY --chown=cairn:cairn retrieval retrieval
COPY --chown=cairn:cairn app app
RUN make install
ARG EXTRAS=""
RUN [ -z "$EXTRAS" ] || .venv/bin/python -m pip install --no-cache-dir --constraint requirements.txt --editable ".[$EXTRAS]"

ENV CAIRN_HOME=/data \
    CAIRN_HOST=0.0.0.0 \
    PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 7860

HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD [".venv/bin/python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('CAIRN_PORT') or 7860}/healthz\", timeout=4)"]

# Addresses beyond this machine are served with a password only: CAIRN_PASSWORD, or CAIRN_PASSWORD_FILE for a secret.
CMD [".venv/bin/python", "-m", "app", "serve"]
