# The context is a folder with the static program, certificates and an empty folder: see docs/operation.md.
FROM scratch
COPY etc /etc
COPY storeorder /storeorder
COPY --chown=65532:65532 data /data
USER 65532:65532
# SQLite's temporary files go to the working directory: an empty root has no other place for them.
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["/storeorder", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/storeorder"]
CMD ["serve", "-addr", ":8080"]
