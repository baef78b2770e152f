# syntax=docker/dockerfile:1
# The operator's command; `tocsin migrate` is what brings a database up to date.
# Built from the repository's root: docker build -f deploy/tocsin.Dockerfile .
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOWORK=off
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY db db
COPY internal internal
COPY cmd cmd
ARG TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags=-s -o /out/tocsin ./cmd/tocsin

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/tocsin /usr/bin/tocsin
USER 65532:65532
ENTRYPOINT ["/usr/bin/tocsin"]
