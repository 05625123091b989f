# For shell tests that source this file: they end with `exit $failed`.
failed=0

# expect CODE PART COMMAND…: the command's exit code and a part of what it prints.
expect() {
    local code=$1 part=$2 output got
    shift 2
    output=$("$@" 2>&1)
    got=$?
    if [ $got -ne "$code" ] || [[ $output != *"$part"* ]]; then
        echo "FAILED: $*: exit code $got instead of $code, or '$part' not in: $output"
        failed=1
    fi
}
