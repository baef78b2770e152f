# syntax=docker/dockerfile:1
# Built from the repository's root: docker build -f deploy/ingest.Dockerfile .
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOWORK=off
COPY go.mod go.sum ./
COPY services/ingest/go.mod services/ingest/go.sum services/ingest/
RUN --mount=type=cache,target=/go/pkg/mod go -C services/ingest mod download
COPY db db
COPY deploy/healthcheck deploy/healthcheck
COPY internal internal
COPY services/ingest services/ingest
ARG TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    export GOOS=$TARGETOS GOARCH=$TARGETARCH && \
    go build -trimpath -ldflags=-s -o /out/healthcheck ./deploy/healthcheck && \
    go -C services/ingest build -trimpath -ldflags=-s -o /out/ingest .

# Nothing but the program, what asks for its health, and the certificates of the public authorities.
# The program executes itself again for the workers that run hooks.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/healthcheck /out/ingest /usr/bin/
USER 65532:65532
ENV APPS_DIR=/apps
WORKDIR /apps
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=6 \
  CMD ["/usr/bin/healthcheck", "http://127.0.0.1:8081/readyz"]
ENTRYPOINT ["/usr/bin/ingest"]
