#!/usr/bin/env bash
# Packs the tree of a Debian package as an RPM: rpm.sh TARGET VERSION WORK OUT, after deb.sh.
set -euo pipefail

target=$1 version=$2 work=$3 out=$4
architecture=${target%%-*}
case $architecture in
    x86_64) tree=$work/deb-amd64 ;;
    aarch64) tree=$work/deb-arm64 ;;
    *) echo "rpm: no tree for $target" >&2; exit 1 ;;
esac
copy=$work/rpm-$architecture
rm -rf "$copy"
cp -a "$tree" "$copy"
rm -r "$copy/DEBIAN"
mv "$copy/usr/share/zsh/vendor-completions" "$copy/usr/share/zsh/site-functions"
rpmbuild -bb --quiet --target "$architecture-linux" --define "_topdir $work/rpmbuild" --define "_rpmdir $work/rpms" \
    --define "release_version $version" --define "tree $copy" --define "_build_id_links none" \
    --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
    packaging/rpm/orrery.spec
cp "$work/rpms/$architecture/orrery-$version-1.$architecture.rpm" "$out/"
