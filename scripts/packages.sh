#!/usr/bin/env bash
# Whether each crate that is published would go out with all that belongs to it, and nothing else: licences, the read-me,
# what its sources include, words about it. Seconds; scripts/package.sh builds what goes out.
. "$(dirname "$0")/lib.sh"
. scripts/published.sh

for crate in "${published[@]}"; do
    files=$(cargo package --locked --allow-dirty --list --package "$crate")
    for file in Cargo.toml Cargo.toml.orig LICENSE-APACHE LICENSE-MIT README.md; do
        grep -qx "$file" <<< "$files" || die "$crate would go out without $file"
    done
    case $crate in
        pinfold-cli) grep -qx src/main.rs <<< "$files" || die "$crate would go out without src/main.rs" ;;
        *) grep -qx src/lib.rs <<< "$files" || die "$crate would go out without src/lib.rs" ;;
    esac
    # Files that git does not know go nowhere: those below src all have to go.
    while read -r file; do
        grep -qxF "${file#"crates/$crate/"}" <<< "$files" || die "$crate would go out without $file"
    done < <(git ls-files "crates/$crate/src" 2> /dev/null || true)
    ! grep -E '^(target|golden/\.|.*\.(profraw|orig~|swp)$)' <<< "$files" || die "$crate would go out with these"
    say "$crate: $(wc -l <<< "$files") files"
done

cargo metadata --locked --offline --no-deps --format-version 1 | python3 -c '
import json, sys

published = sys.argv[1:]
packages = {it["name"]: it for it in json.load(sys.stdin)["packages"]}
wrong = []
for name, it in packages.items():
    goes_out = it["publish"] is None
    if goes_out != (name in published):
        wrong.append(f"{name}: publish says otherwise than scripts/published.sh")
    if not goes_out:
        continue
    for word in ("description", "license", "readme", "documentation", "rust_version"):
        if not it[word]:
            wrong.append(f"{name} has no {word}")
    if not 1 <= len(it["categories"]) <= 5 or not 1 <= len(it["keywords"]) <= 5:
        wrong.append(f"{name} needs 1 to 5 categories and as many keywords")
    wrong += [f"{name}: keyword {it}" for it in it["keywords"] if len(it) > 20 or " " in it]
    for other in it["dependencies"]:
        if other.get("path") and other["kind"] != "dev":
            if other["name"] not in published:
                wrong.append(f"{name} needs {other['"'name'"']}, which is not published")
            elif other["req"] == "*":
                wrong.append(f"{name} needs {other['"'name'"']} of no version")
            elif published.index(other["name"]) > published.index(name):
                wrong.append(f"{name} would go out before {other['"'name'"']}")
print("\n".join(wrong))
sys.exit(bool(wrong))
' "${published[@]}"
