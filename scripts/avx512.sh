#!/usr/bin/env bash
# The copies of 64 bytes an instruction, executed: where the processor has no AVX-512, by one that Bochs
# emulates, under a Linux of its own. Some ten minutes. KERNEL=FILE boots that one instead of Debian's.
. "$(dirname "$0")/lib.sh"
[ "$(uname -m)" = x86_64 ] || skip "AVX-512 is for x86-64"

if grep -qw avx512f /proc/cpuinfo; then
    say "this processor has AVX-512: nothing to emulate"
    exec cargo test --locked --package pinfold-sys --lib -- block:: "$@"
fi

packages="bochs bochsbios bochs-term vgabios isolinux syslinux-common xorriso busybox-static"
bios=/usr/share/bochs/BIOS-bochs-latest vga=/usr/share/vgabios/vgabios.bin
loader=/usr/lib/ISOLINUX/isolinux.bin library=/usr/lib/syslinux/modules/bios/ldlinux.c32
# The first of Intel's with AVX-512 that Bochs knows.
model=corei7_skylake_x
for tool in bochs xorriso busybox; do
    have "$tool" || skip "there is no $tool; run: apt-get install $packages"
done
for file in "$bios" "$vga" "$loader" "$library"; do
    [ -e "$file" ] || skip "there is no $file; run: apt-get install $packages"
done
[[ $(ldd "$(command -v busybox)" 2>&1) != *=\>* ]] ||
    skip "this busybox needs libraries; run: apt-get install busybox-static"
[[ $(bochs --help cpu 2>&1) == *$model* ]] || skip "this Bochs knows no processor with AVX-512"

machine=$target/avx512/machine
mkdir -p "$machine"
kernel=$(realpath -m "${KERNEL:-$machine/linux}")
if [ ! -e "$kernel" ]; then
    [ -z "${KERNEL:-}" ] || die "there is no $KERNEL"
    have apt-get || skip "nowhere to take a kernel from; run with KERNEL=FILE, which names one"
    newest=$(apt-cache depends linux-image-cloud-amd64 2> /dev/null |
        sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
    [ -n "$newest" ] || skip "apt-get knows no linux-image-cloud-amd64; run: apt-get update"
    say "fetching $newest, to boot it in the emulator"
    rm -f "$machine"/*.deb
    (cd "$machine" && apt-get download -qq "$newest") || skip "cannot fetch $newest; run: apt-get update"
    dpkg-deb --fsys-tarfile "$machine"/*.deb |
        tar -x --to-stdout --wildcards './boot/vmlinuz*' > "$machine/linux.part"
    mv "$machine/linux.part" "$machine/linux"
    rm "$machine"/*.deb
fi

# With the C library in it, there being none in the emulator. Named as a target, or what runs while
# building would have to be so, too.
host=$(host_triple)
export RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" CARGO_TARGET_DIR=$target/avx512
program=$(cargo test --locked --target "$host" --package pinfold-sys --lib --no-run \
    --message-format=json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')

# What is on the CD that the emulator boots: a kernel, and the files that are all it has.
cd "$machine"
rm -rf root cd cd.iso serial
mkdir -p root cd
cp "$(command -v busybox)" root/busybox
cp "$program" root/tests
printf '%s\n' --test-threads=1 block:: "$@" > root/arguments
cat > root/init << 'END'
#!/busybox sh
/busybox mkdir -p /proc /dev /tmp
/busybox mount -t proc proc /proc
/busybox mount -t devtmpfs dev /dev
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
/busybox stty -opost
/busybox grep -E '^(model name|flags)' /proc/cpuinfo
RUST_BACKTRACE=0 /tests $(/busybox cat /arguments)
echo "exit status $?"
# Until the line has taken all of it.
/busybox sleep 1
/busybox poweroff -f
END
chmod 755 root/init
(cd root && find . | busybox cpio -o -H newc) > cd/files 2> /dev/null
cp "$kernel" cd/linux
cp "$loader" "$library" cd/
# Bochs is wrong about the size of the registers in short form, at which Linux would use none but the
# oldest. Where Linux dies, a triple fault ends the emulator.
cat > cd/isolinux.cfg << 'END'
default linux
label linux
  kernel linux
  append initrd=files console=ttyS0 loglevel=1 clearcpuid=xsavec,xsaves mitigations=off panic=-1 reboot=triple
END
xorriso -as mkisofs -quiet -o cd.iso -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
    -boot-info-table cd 2> xorriso.log || { cat xorriso.log; die "cannot make a CD"; }
cat > bochsrc << END
cpu: model=$model, ips=50000000, reset_on_triple_fault=0
memory: guest=256, host=256
romimage: file=$bios
vgaromimage: file=$vga
ata0-master: type=cdrom, path=cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial
clock: sync=none
plugin_ctrl: speaker=0
display_library: term
log: bochs.log
panic: action=fatal
error: action=ignore
END
# Debian's has a debugger in it, which waits to be told.
debugger=()
if [[ $(bochs --help 2>&1) == *-rc* ]]; then
    echo c > debugger
    debugger=(-rc debugger)
fi

say "booting $model, emulated"
: > serial
TERM=linux timeout --kill-after 5 3600 bochs -q -f bochsrc "${debugger[@]}" < /dev/null > screen 2>&1 &
bochs=$!
trap 'kill "$bochs" 2> /dev/null || true' EXIT
# With a debugger its screen is a terminal of its own, and it stops when nobody takes in what it writes.
terminal=
while [ -z "$terminal" ] && [ ${#debugger[@]} -gt 0 ] && kill -0 "$bochs" 2> /dev/null; do
    sleep 0.1
    terminal=$(sed -n 's/^Bochs connected to screen "\(.*\)".*/\1/p' screen)
done
if [ -n "$terminal" ]; then
    stty raw -echo -F "$terminal"
    # It ends with the emulator.
    cat "$terminal" > /dev/null 2>&1 &
fi
tail -n +1 --pid="$bochs" -f serial
# Turned off, it says that something went wrong: what counts is what the tests said.
status=0
wait "$bochs" || status=$?
[[ $status != 124 && $status != 137 ]] || die "the emulator did not come to an end within an hour"

# Without the instructions every test would pass as well.
grep -q '^flags.* avx512f ' serial || die "nothing with AVX-512 was emulated; see $machine/serial"
grep -qx 'exit status 0' serial || die "the tests failed in the emulator"
grep -q '^test block::tests::the_processor_has_what_it_says \.\.\. ok' serial ||
    die "nobody knows whether AVX-512 was used"
