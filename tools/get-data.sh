#!/usr/bin/env bash
# Brings the data that the configurations name, data/NAME of this checkout (installed: of the current folder), and checks them. Data that lie in the folder of the variable
# COD_DATA are linked; Debian's packages are fetched and unpacked, not installed; of the rest it says where to get it.
#
# usage: tools/get-data.sh [--from DIR] [--check] [NAME ...]
#   NAME         a set, or several; without one all sets are listed, with what is here
#   --from DIR   copies the files of the set NAME out of DIR, wherever they lie in it: the folder that you have unpacked your download in
#   --check      checks what data/NAME holds, and brings nothing
set -euo pipefail
caller=$PWD
called=$0
here=$(cd "$(dirname "$0")" && pwd)
[ ! -e "$here/../CMakeLists.txt" ] || cd "$here/.."

sets=(photos debian-photos set5 mnist iris insects niqe vgg19 squeezenet)

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$here/get-data.sh" && echo "sets: ${sets[*]}"; }
bad_usage() { echo "get-data: $1; see $called --help" >&2; exit 2; }
say() { echo "get-data: $*"; }
complain() { echo "get-data: $*" >&2; }

# What a set is, in one line.
what() {
    case $1 in
        photos) echo "100 photographs, every second one of BSDS500's training set; without them Debian's 12" ;;
        debian-photos) echo "12 photographs of Debian's mate-backgrounds" ;;
        set5) echo "Set5: five pictures, and the same at a quarter of their sides" ;;
        mnist) echo "MNIST: 70000 handwritten digits, four IDX files" ;;
        iris) echo "Fisher's irises: a table of 150 flowers" ;;
        insects) echo "60 photographs of ants and bees, some of PyTorch's hymenoptera_data" ;;
        niqe) echo "the published model of natural pictures that NIQE compares with" ;;
        vgg19) echo "VGG-19's weights up to conv3_4: the perceptual loss of SRGAN and its like" ;;
        squeezenet) echo "SqueezeNet 1.1's weights: the metric LPIPS" ;;
    esac
}

# Where people get a set that this script cannot fetch, and how it is brought in.
where() {
    local bring="$called $1 --from DIR"
    case $1 in
        photos)
            echo "  BSDS500: https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/BSR_bsds500.tgz (70 MB);"
            echo "  unpack it in a folder DIR, then: $bring" ;;
        set5)
            echo "  https://github.com/jbhuang0604/SelfExSR, folder data/Set5/image_SRF_4; download it to a folder DIR, then: $bring" ;;
        mnist)
            echo "  https://ossci-datasets.s3.amazonaws.com/mnist/: train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz,"
            echo "  t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz; download them to a folder DIR, then: $bring" ;;
        iris) echo "  https://github.com/mwaskom/seaborn-data, file iris.csv; download it to a folder DIR, then: $bring" ;;
        insects)
            echo "  https://download.pytorch.org/tutorial/hymenoptera_data.zip; unpack it in a folder DIR, then: $bring" ;;
        niqe)
            echo "  https://github.com/XPixelGroup/BasicSR, file basicsr/metrics/niqe_pris_params.npz; download it to a folder DIR, then: $bring" ;;
        vgg19)
            echo "  torchvision's: https://download.pytorch.org/models/vgg19-dcbb9e9d.pth; in Python, with torch and safetensors:"
            echo "    import torch, safetensors.torch"
            echo "    w = {k: v for k, v in torch.load('vgg19-dcbb9e9d.pth').items() if k.startswith('features.') and int(k.split('.')[1]) <= 16}"
            echo "    safetensors.torch.save_file(w, 'vgg19_conv1_1_to_conv3_4.safetensors')"
            echo "  and with that file in a folder DIR: $bring" ;;
        squeezenet)
            echo "  torchvision's: https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth; in Python, with torch and safetensors:"
            echo "    import torch, safetensors.torch"
            echo "    w = {k: v for k, v in torch.load('squeezenet1_1-b8a52dc0.pth').items() if k.startswith('features.')}"
            echo "    safetensors.torch.save_file(w, 'squeezenet_v1.1_features.safetensors')"
            echo "  and with that file in a folder DIR: $bring" ;;
    esac
}

# The folder of the set $1 below a folder of data that somebody else fills.
folder_in() { case $1 in vgg19 | squeezenet) echo weights ;; *) echo "$1" ;; esac; }

# Sets whose files may hold something else, which is only told: weights may have been converted in another way, and Codistill looks at their
# layers; a later package may hold its photographs anew.
any_content() { case $1 in vgg19 | squeezenet | debian-photos) return 0 ;; *) return 1 ;; esac; }

# The sum of what a file holds: a .gz holds what was packed.
sum_of() { case $1 in *.gz) gzip -dc "$1" 2>/dev/null ;; *) cat "$1" ;; esac | sha256sum | cut -d ' ' -f 1; }

# Prints what is found of file $3 of set $1 in folder $2, itself or packed: lines of its path.
found_in() {
    local base=${3##*/}
    if [ "$4" = anywhere ]; then
        find -L "$2" -type f \( -name "$base" -o -name "$base.gz" \) 2>/dev/null | LC_ALL=C sort
    else
        for path in "$2/$3" "$2/$3.gz"; do [ ! -f "$path" ] || printf '%s\n' "$path"; done
    fi
}

# Three names of a list at most.
some() {
    local list=("${@:2}")
    [ ${#list[@]} -gt 0 ] || return 0
    printf '; %s: %s' "$1" "${list[0]}"
    printf ', %s' "${list[@]:1:2}" | sed 's/^, $//'
    [ ${#list[@]} -le 3 ] || printf ' and %d more' $((${#list[@]} - 3))
}

# gather SET FOLDER [anywhere]: finds the set's files in FOLDER, checks them, and puts lines "PATH<tab>NAME" in the array `gathered`.
gathered=()
gather() {
    local set=$1 folder=$2 how=${3:-in_place} sum name path chosen missing=() differing=() count=0
    gathered=()
    while read -r sum name; do
        count=$((count + 1))
        chosen=
        local here=no
        while IFS= read -r path; do
            here=yes
            if [ "$(sum_of "$path")" = "$sum" ]; then chosen=$path && break; fi
            if any_content "$set"; then
                chosen=$path
                say "$set: '$path' is taken, but it is not the file that Codistill's figures were measured with"
                break
            fi
        done < <(found_in "$set" "$folder" "$name" "$how")
        if [ -n "$chosen" ]; then
            [[ $chosen == *.gz ]] && [[ $name != *.gz ]] && name=$name.gz
            gathered+=("$chosen"$'\t'"$name")
        elif [ $here = yes ]; then differing+=("$name"); else missing+=("$name"); fi
    done <"$here/data/$set.sha256"
    [ ${#gathered[@]} -eq $count ] && return 0
    complain "$set: '$folder' holds ${#gathered[@]} of the $count files$(some missing "${missing[@]}")$(some "other content" "${differing[@]}")"
    return 1
}

# Debian's photographs, where BSDS500's are not.
is_substitute() { [ "$(readlink "data/$1" 2>/dev/null)" = debian-photos ]; }

# place SET link|copy: makes data/SET of what was gathered. It appears as a whole, or not at all, and replaces nothing that is not ours.
place() {
    local line path name new
    if ! is_substitute "$1" && { [ -e "data/$1" ] || [ -L "data/$1" ]; }; then
        complain "$1: data/$1 is there, holds something else, and is left as it is; take it away to have it filled"
        return 1
    fi
    mkdir -p data
    new=$(mktemp -d data/.new.XXXXXX)
    for line in "${gathered[@]}"; do
        path=${line%%$'\t'*} name=${line#*$'\t'}
        mkdir -p "$new/$(dirname "$name")"
        if [ "$2" = link ]; then ln -s "$(realpath "$path")" "$new/$name"; else cp "$path" "$new/$name"; fi
    done
    chmod 755 "$new"
    rm -f "data/$1"
    mv "$new" "data/$1"
    say "$1: ${#gathered[@]} files in data/$1"
}

# Unpacks Debian's package $1 into the folder $2.
fetch_package() {
    local debs=()
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        { complain "there is no apt-get here to fetch Debian's package $1 with"; return 1; }
    say "fetching Debian's package $1"
    (
        cd "$2"
        apt-get download "$1" >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1 && apt-get download "$1" >/dev/null 2>&1; }
    ) || { complain "apt-get could not download $1; is there a network, and a right /etc/apt/sources.list?"; return 1; }
    debs=("$2/$1"_*.deb)
    dpkg -x "${debs[0]}" "$2"
}

# fetch SET FOLDER: what Debian's packages hold of it, by way of an empty folder.
fetch() {
    local folder=$2 table
    case $1 in
        debian-photos)
            fetch_package mate-backgrounds "$folder" || return 1
            gather "$1" "$folder/usr/share/backgrounds/mate/nature" ;; # the package's other folders are drawings
        iris)
            fetch_package python3-sklearn "$folder" || return 1
            table=$folder/usr/lib/python3/dist-packages/sklearn/datasets/data/iris.csv
            [ -f "$table" ] || { complain "iris: the package python3-sklearn holds no iris.csv where it was"; return 1; }
            # Scikit-learn writes the names of the classes in the first line, and numbers instead of them behind it.
            {
                echo sepal_length,sepal_width,petal_length,petal_width,species
                tail -n +2 "$table" | tr -d '\r' | sed 's/,0$/,setosa/;s/,1$/,versicolor/;s/,2$/,virginica/'
            } >"$folder/iris.csv"
            gather "$1" "$folder" ;;
        *) return 1 ;;
    esac && place "$1" copy
}

# Whether data/SET is there and right.
is_here() { [ -d "data/$1" ] && gather "$1" "data/$1" 2>/dev/null; }

bring() {
    local set=$1 root
    if ! is_substitute "$set" && is_here "$set"; then
        say "$set: data/$set is complete (${#gathered[@]} files)"
        return 0
    fi
    if [ -n "$from" ]; then
        gather "$set" "$from" anywhere || { where "$set"; return 1; }
        place "$set" copy
        return
    fi
    root=${COD_DATA:-}
    if [ -n "$root" ] && [ -d "$root/$(folder_in "$set")" ] && gather "$set" "$root/$(folder_in "$set")"; then
        place "$set" link
        return
    fi
    case $set in
        debian-photos | iris)
            [ -z "$unpacked" ] || rm -rf "$unpacked"
            unpacked=$(mktemp -d)
            fetch "$set" "$unpacked" || { where "$set"; return 1; } ;;
        photos)
            bring debian-photos || return 1
            if ! is_substitute photos; then
                ln -s debian-photos data/photos 2>/dev/null ||
                    { complain "photos: data/photos is there, holds something else, and is left as it is; take it away to have it filled"; return 1; }
            fi
            say "photos: data/photos are Debian's 12 photographs; data.val_count=3 leaves 9 of them to train on, where a configuration holds out 8."
            say "photos: the figures in configs/ were measured on 100 photographs of BSDS500:"
            where photos ;;
        *)
            complain "$set: $(what "$set"): no package of Debian's has it."
            where "$set"
            return 1 ;;
    esac
}

check() {
    local set=$1
    if is_substitute "$set"; then
        say "$set: data/$set stands for data/debian-photos"
        set=debian-photos
    fi
    [ -d "data/$set" ] || { complain "$set: there is no data/$set; $called $1 brings it"; return 1; }
    gather "$set" "data/$set" && say "$1: data/$1 is complete (${#gathered[@]} files)"
}

list() {
    local set state
    for set in "${sets[@]}"; do
        state="-"
        [ ! -d "data/$set" ] || state="data/$set"
        printf '%-14s %-19s %s\n' "$set" "$state" "$(what "$set")"
    done
    echo "$called NAME brings one."
}

unpacked=
trap '[ -z "$unpacked" ] || rm -rf "$unpacked"' EXIT
from= mode=bring wanted=()
while [ $# -gt 0 ]; do
    case $1 in
        --from)
            [ $# -gt 1 ] || bad_usage "--from needs a folder"
            case $2 in /*) from=$2 ;; *) from=$caller/$2 ;; esac
            [ -d "$from" ] || { complain "--from: '$2' is not a folder"; exit 1; }
            shift ;;
        --check) mode=check ;;
        -h | --help) usage; exit 0 ;;
        -*) bad_usage "unknown option '$1'" ;;
        *)
            [[ " ${sets[*]} " == *" $1 "* ]] || bad_usage "there is no set '$1'; sets are: ${sets[*]}"
            wanted+=("$1") ;;
    esac
    shift
done
[ -z "$from" ] || [ ${#wanted[@]} -eq 1 ] || bad_usage "--from goes with the name of one set"
[ -z "$from" ] || [ $mode = bring ] || bad_usage "--from does not go with --check"
if [ ${#wanted[@]} -eq 0 ]; then
    [ $mode = bring ] || bad_usage "--check needs the name of a set"
    list
    exit 0
fi
failed=0
for name in "${wanted[@]}"; do $mode "$name" || failed=1; done
exit $failed
