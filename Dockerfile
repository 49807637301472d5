# The image of Orrery: the static binary and a data directory, for a user without rights. `make image` writes the same
# files to dist/image, and an image of them without a container engine.
#
#   make dist image && docker build -t orrery:0.2.0 .
#   docker run --read-only --cap-drop ALL -p 127.0.0.1:8081:8081 -p 127.0.0.1:10250:10250 -v orrery:/data orrery:0.2.0 serve --profile emulator
FROM scratch
# amd64 or arm64, set by the builder.
ARG TARGETARCH
COPY dist/image/${TARGETARCH}/etc /etc
COPY dist/image/${TARGETARCH}/usr /usr
COPY dist/image/${TARGETARCH}/tmp /tmp
# Not there before, so that it gets this owner.
COPY --chown=65532:65532 dist/image/${TARGETARCH}/data /data
USER 65532:65532
ENV PATH=/usr/bin ORRERY_LISTEN=0.0.0.0:8081 ORRERY_DATA=/data
WORKDIR /data
VOLUME /data
# HTTP, HTTPS and the explorer; direct mode, the default of .NET and Java.
EXPOSE 8081 10250
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/usr/bin/orrery", "health"]
ENTRYPOINT ["/usr/bin/orrery"]
CMD ["serve"]
