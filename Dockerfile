# Store Orders as an image: `docker build -t store-orders .`
#
# Alone, with SQLite, all there is in the volume: `docker run -p 127.0.0.1:8080:8080 -v orders:/data
# --read-only --cap-drop ALL store-orders`. Several, with what they share: deploy/compose.

FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY requirements.txt ./
# The program's own packages, each of which must be the one that was locked, and nothing that installs them.
RUN python -m venv --without-pip /opt/venv \
    && pip --python /opt/venv/bin/python install --no-cache-dir --require-hashes \
        --requirement requirements.txt

FROM python:3.11-slim-bookworm
# A number, not a name: Kubernetes can tell by it that it is not root.
RUN groupadd --gid 10001 orders \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin orders \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/venv /opt/venv
WORKDIR /srv/store-orders
COPY app.py ./
COPY orders orders
COPY schemas schemas
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ORDERS_INSTANCE=/data \
    ORDERS_HOST=0.0.0.0 \
    ORDERS_PORT=8080
# Or each start would compile them: the image is read only when it runs.
RUN python -m compileall -q app.py orders schemas
USER 10001:10001
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=6s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/readyz', timeout=5)"]
CMD ["python", "app.py"]
