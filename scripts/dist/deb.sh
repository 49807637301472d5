#!/usr/bin/env bash
# Packs a binary as a Debian package: deb.sh BINARY TARGET VERSION WORK OUT. WORK holds man pages, completions and licences.
set -euo pipefail

binary=$1 target=$2 version=$3 work=$4 out=$5
case $target in
    x86_64-*) architecture=amd64 ;;
    aarch64-*) architecture=arm64 ;;
    *) echo "deb: no Debian architecture for $target" >&2; exit 1 ;;
esac
tree=$work/deb-$architecture
rm -rf "$tree"
install -D -m 755 "$binary" "$tree/usr/bin/orrery"
install -D -m 644 packaging/systemd/orrery.service "$tree/usr/lib/systemd/system/orrery.service"
install -D -m 644 packaging/systemd/orrery.default "$tree/etc/default/orrery"
install -D -m 644 "$work/completions/orrery.bash" "$tree/usr/share/bash-completion/completions/orrery"
install -D -m 644 "$work/completions/_orrery" "$tree/usr/share/zsh/vendor-completions/_orrery"
install -D -m 644 "$work/completions/orrery.fish" "$tree/usr/share/fish/vendor_completions.d/orrery.fish"
for page in "$work"/man/*.1; do
    install -d "$tree/usr/share/man/man1"
    gzip -9nc "$page" >"$tree/usr/share/man/man1/$(basename "$page").gz"
done
doc=$tree/usr/share/doc/orrery
install -d "$doc"
install -m 644 README.md LICENSE-APACHE LICENSE-MIT "$work/THIRD-PARTY-LICENSES.txt" "$doc/"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
cat >"$doc/copyright" <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: orrery
Source: https://github.com/orrery-db/orrery

Files: *
Copyright: The Orrery developers
License: Apache-2.0 or MIT
 The texts are in LICENSE-APACHE and LICENSE-MIT in this directory; those of the packages it contains are in
 THIRD-PARTY-LICENSES.txt.
TEXT
install -d "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<TEXT
Package: orrery
Version: $version
Architecture: $architecture
Maintainer: The Orrery developers <orrery@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Section: database
Priority: optional
Homepage: https://github.com/orrery-db/orrery
Recommends: ca-certificates
Description: document database that speaks the protocol of Azure Cosmos DB
 Orrery is a partitioned, self-hosted JSON document database that speaks the
 wire protocol of Azure Cosmos DB for NoSQL. The official SDKs connect to it
 unmodified. The binary is static and needs no other package.
TEXT
echo /etc/default/orrery >"$tree/DEBIAN/conffiles"
install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$tree/DEBIAN/"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/orrery_${version}_$architecture.deb" >/dev/null
