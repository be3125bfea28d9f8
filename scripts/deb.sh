#!/usr/bin/env bash
# Makes Debian packages in target/deb, and looks at what is in them: pinfold (the command, its manual, completions) and
# libpinfold-dev (the C library, its headers, pkg-config and CMake files).
# BUILT names a folder with a pinfold, libpinfold_capi.so and .a that are there already; else they are built for it.
. "$(dirname "$0")/lib.sh"
for tool in dpkg-deb gzip; do have "$tool" || skip "there is no $tool; on Debian run: apt-get install dpkg gzip"; done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
abi=$(sed -n 's/.*-soname,libpinfold\.so\.\([0-9]*\).*/\1/p' crates/pinfold-capi/build.rs)
about=$(sed -n 's/^description = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
arch=$(dpkg-deb --version > /dev/null && dpkg --print-architecture)
# Debian's upload mails and bug reports go there; nobody is named in the tree, so the builder is.
maintainer=${DEBFULLNAME:-Pinfold} maintainer+=" <${DEBEMAIL:-nobody@localhost}>"
if [ -z "${BUILT:-}" ]; then
    cargo build --locked --profile dist --package pinfold-cli --package pinfold-capi
    BUILT=$target/dist
fi
# Files have the time of the commit, so that the same sources make the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}
export SOURCE_DATE_EPOCH

out=$target/deb
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# The newest version of the C library that one of these asks a symbol of.
needs() {
    local newest
    newest=$(grep -aoh 'GLIBC_2\.[0-9]*' "$@" | sed 's/GLIBC_//' | sort -uV | tail -n 1)
    [ -n "$newest" ] || die "$* asks the C library for nothing"
    printf 'libc6 (>= %s), libgcc-s1' "$newest"
}

# pack NAME DEPENDS SECTION "SHORT" "LONG": what is below $work/NAME, with licences and control files.
pack() {
    local root=$work/$1 doc=$work/$1/usr/share/doc/$1
    install -d "$doc" "$root/DEBIAN"
    {
        echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
        echo "Upstream-Name: pinfold"
        echo
        echo "Files: *"
        sed -n 's/^Copyright (c) /Copyright: /p' LICENSE-MIT | head -n 1 | grep . || echo "Copyright: The Pinfold contributors"
        echo "License: MIT or Apache-2.0"
        echo
        echo "License: MIT or Apache-2.0"
        sed 's/^$/./; s/^/ /' LICENSE-MIT
        echo " ."
        echo " Or, at your option, the Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0"
    } > "$doc/copyright"
    gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
    {
        echo "Package: $1"
        echo "Version: $version"
        echo "Architecture: $arch"
        echo "Maintainer: $maintainer"
        echo "Depends: $2"
        echo "Section: $3"
        echo "Priority: optional"
        echo "Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)"
        echo "Description: $4"
        fold -sw 78 <<< "$5" | sed 's/ *$//; s/^/ /'
    } > "$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
    find "$root" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/${1}_${version}_$arch.deb" > /dev/null
}

root=$work/pinfold share=$work/pinfold/usr/share
install -D -m 755 "$BUILT/pinfold" "$root/usr/bin/pinfold"
"$BUILT/pinfold" man --out "$share/man/man1"
gzip -9n "$share"/man/man1/*.1
install -d "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
"$BUILT/pinfold" completions bash > "$share/bash-completion/completions/pinfold"
"$BUILT/pinfold" completions zsh > "$share/zsh/vendor-completions/_pinfold"
"$BUILT/pinfold" completions fish > "$share/fish/vendor_completions.d/pinfold.fish"
install -D -m 644 -t "$share/doc/pinfold" README.md docs/systemd.md docs/monitoring.md docs/containers.md
pack pinfold "$(needs "$BUILT/pinfold")" net "messages between processes without copies" \
    "$about. The command measures, sends and receives files, watches endpoints and runs MPI programs."

PREFIX=/usr DESTDIR=$work/libpinfold-dev BUILT=$BUILT scripts/install.sh > /dev/null
chmod 644 "$work/libpinfold-dev/usr/lib/libpinfold.so.$version"
pack libpinfold-dev "$(needs "$BUILT/libpinfold_capi.so")" libdevel "messages without copies, for C and C++" \
    "$about. The library for programs in C and C++, its headers, and what pkg-config and CMake ask for."

# As they would be installed, below a folder.
within=$work/within
for package in "$out"/*.deb; do
    dpkg-deb --info "$package" > /dev/null
    dpkg -x "$package" "$within"
done
for file in bin/pinfold share/man/man1/pinfold.1.gz share/man/man1/pinfold-send.1.gz include/pinfold.h \
    share/man/man1/pinfold-perf-tcp.1.gz share/bash-completion/completions/pinfold \
    share/zsh/vendor-completions/_pinfold share/fish/vendor_completions.d/pinfold.fish \
    share/doc/pinfold/copyright share/doc/pinfold/changelog.gz share/doc/libpinfold-dev/copyright \
    "lib/libpinfold.so.$version" lib/libpinfold.a lib/pkgconfig/pinfold.pc include/pinfold.hpp; do
    [ -s "$within/usr/$file" ] || die "no package has usr/$file"
done
[ "$(readlink "$within/usr/lib/libpinfold.so")" = "libpinfold.so.$abi" ] || die "usr/lib/libpinfold.so leads nowhere"
said=$("$within/usr/bin/pinfold" --version)
[[ $said == "pinfold $version"* ]] || die "the packed command says: $said"
(cd "$within" && find usr -type f) | grep -v '^usr/' && die "a file is not below usr"
if have lintian; then
    lintian --fail-on error --suppress-tags bad-distribution-in-changes-file,statically-linked-binary "$out"/*.deb
else
    say "there is no lintian to ask"
fi
ls -l "$out"/*.deb
