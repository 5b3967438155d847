#!/bin/sh
# Places an order and lists all orders; waits when the store says so. For curl 7.71 or later.
# With `follow` as its argument, it prints every change of every order instead, a page a line; with
# `follow --live`, from a stream, as they are made.
# The store's address is in STORE_URL, the API key in STORE_KEY.
set -eu

answer=$(mktemp)
last=$(mktemp)
trap 'rm -f "$answer" "$last"' EXIT
trap 'exit 1' INT TERM

# ask PATH [CURL'S OPTIONS]: prints the answer.
#
# --retry: 429, 503 and others that may go away are tried again, after the seconds of Retry-After
#   or, without it, after 1 s, 2 s, 4 s, … It is not shortened: where the waiting would come to more
#   than --retry-max-time (the day's quota is used up: come back later), curl gives up.
# --retry-all-errors: so are connections that broke. Never beside --fail or --fail-with-body, with
#   which it sends again what was refused for good, and older curls overlook Retry-After.
# --output: a pipe would get the body of each try.
# --config: arguments can be seen by everyone on the machine, what is piped in can't.
ask() {
    path=$1
    shift
    status=$(
        printf 'header = "Authorization: Bearer %s"\n' "$STORE_KEY" |
            curl --config - --silent --show-error --max-time 30 \
                --retry 5 --retry-all-errors --retry-max-time 900 \
                --output "$answer" --write-out '%{http_code}' "$@" "$STORE_URL$path"
    )
    if [ "$status" -ge 400 ]; then
        cat "$answer" >&2
        exit 1
    fi
    cat "$answer"
    echo
}

# Prints events as they come, until the stream ends or is refused; writes the last one's id to $last.
stream() {
    printf '%s\n' "$after" > "$last"
    printf 'header = "Authorization: Bearer %s"\n' "$STORE_KEY" |
        curl --config - --silent --no-buffer --fail --max-time 3700 \
            --header 'Accept: text/event-stream' --header "Last-Event-ID: $after" \
            "$STORE_URL/v2/store/events" |
        while read -r line; do
            case $line in
                'id: '*) id=${line#id: } ;;
                'data: '*) printf '%s\n' "${line#data: }"; printf '%s\n' "$id" > "$last" ;;
            esac
        done
    after=$(cat "$last")
}

# Prints each event once. A shop keeps `after` with what it did, and goes on from there.
follow() {
    after=0
    while :; do
        [ -z "$live" ] || stream
        page=$(ask "/v2/store/events?after=$after&limit=200")
        [ -n "$live" ] && [ "${page%'"events":[]'*}" != "$page" ] || printf '%s\n' "$page"
        after=$(printf '%s\n' "$page" | sed 's/.*"next":\([0-9]*\).*/\1/')
        case $page in *'"more":false}') sleep "${live:-5}" ;; esac
    done
}

live=
[ "${2-}" != --live ] || live=1
if [ "${1-}" = follow ]; then
    follow
fi

# One value for each order: sent again with the same value, it is placed once.
once=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
ask /v1/store/orders --header "Idempotency-Key: $once" \
    --header 'Content-Type: application/json' --data '{"petId": 7, "quantity": 2}'
ask /v1/store/orders
