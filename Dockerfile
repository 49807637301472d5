# The image of Orrery: the static binary and a data directory, for a user without rights. `make image` writes the same
# without a container engine.
#
#   make dist && docker build -t orrery .
#   docker run --read-only --cap-drop ALL -p 127.0.0.1:8081:8081 -v orrery:/data orrery serve --profile emulator
FROM debian:12-slim AS files
ARG TARGETARCH=amd64
COPY dist/ /dist/
RUN set -eu; \
    case "$TARGETARCH" in amd64) target=x86_64 ;; arm64) target=aarch64 ;; *) exit 1 ;; esac; \
    mkdir -p /image/usr/bin /image/etc /image/data /image/tmp; \
    tar -xzf /dist/orrery-*-"$target"-unknown-linux-musl.tar.gz -C /tmp; \
    install -m 755 /tmp/orrery-*/orrery /image/usr/bin/orrery; \
    printf 'root:x:0:0:root:/:/\nnonroot:x:65532:65532:nonroot:/data:/\n' > /image/etc/passwd; \
    printf 'root:x:0:\nnonroot:x:65532:\n' > /image/etc/group; \
    chmod 1777 /image/tmp; chmod 700 /image/data; chown 65532:65532 /image/data

FROM scratch
COPY --from=files /image/ /
USER 65532:65532
ENV PATH=/usr/bin ORRERY_LISTEN=0.0.0.0:8081 ORRERY_DATA=/data
WORKDIR /data
VOLUME /data
EXPOSE 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/usr/bin/orrery", "health"]
ENTRYPOINT ["/usr/bin/orrery"]
CMD ["serve"]
