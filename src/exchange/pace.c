#include "exchange/pace_internal.h"

#include <limits.h>
#include <stdio.h>

/** The part of the time between two publications that encoding is spread over. */
enum { ENCODING_PART = 3 };

int64_t exchange_encoding_steps(const cod_exchange_options *options)
{
    return (cod_exchange_spacing(options) + ENCODING_PART - 1) / ENCODING_PART;
}

/*
 * Steps from one pull to the next, decoding aside: a question and its answer, two to agree on what is pulled, one until
 * its bytes are here, two to agree that all ranks have theirs, one and two more for ranks that share shards.
 */
enum { STEPS_BESIDE_DECODING = 10 };
/**
 * The part of the time between two publications that decoding is spread over where every peer has a pull of its own.
 */
enum { DECODING_PART = 4 };

static int64_t longest_decoding(const cod_exchange_options *options)
{
    return (cod_exchange_spacing(options) + DECODING_PART - 1) / DECODING_PART;
}

int exchange_pulls_for(const cod_exchange_options *options, int peers)
{
    if (exchange_will_wait(options)) /* then versions are taken one after another */
        return peers > 0;
    const int held = peers * cod_exchange_fragments(options);
    const int64_t steps = held * (longest_decoding(options) + STEPS_BESIDE_DECODING),
                  pulls = (steps + options->period - 1) / options->period;
    const int most = held < COD_EXCHANGE_PULLS_MOST ? held : COD_EXCHANGE_PULLS_MOST;
    return pulls < most ? (int)pulls : most;
}

int64_t exchange_decoding_steps(const cod_exchange_options *options, int peers)
{
    const int64_t longest = longest_decoding(options);
    const int pulls = exchange_pulls_for(options, peers), held = peers * cod_exchange_fragments(options);
    if (pulls == held)
        return longest;
    /* A tenth of a period is left over, for steps that a pull waits for others. */
    const int64_t steps = 9 * options->period * pulls / (10 * held) - STEPS_BESIDE_DECODING;
    return steps < 1 ? 1 : steps < longest ? steps : longest;
}

/** The least that a pull takes, of a rank alone as of ranks that share shards. */
enum { LEAST_STEPS_ALONE = 8, LEAST_STEPS = STEPS_BESIDE_DECODING + 1 };

int cod_exchange_peers_allowed(const cod_exchange_options *options)
{
    const int64_t period = options->period > LEAST_STEPS ? options->period : LEAST_STEPS,
                  peers = COD_EXCHANGE_PULLS_MOST * period / LEAST_STEPS / cod_exchange_fragments(options);
    return peers < INT_MAX ? (int)peers : INT_MAX;
}

bool cod_exchange_falls_behind(const cod_exchange_options *options, int peers, char *advice, size_t bytes)
{
    const int allowed = cod_exchange_peers_allowed(options);
    if (exchange_will_wait(options) || options->codec == COD_EXCHANGE_NONE || peers == 0)
        return false;
    if (peers > allowed) {
        snprintf(
            advice, bytes,
            "a group reads %d peers, and with exchange.period %lld about %d have their turn within a period: some "
            "of their publications are left out; exchange.peers=auto or random(%d) reads fewer, exchange.period=%d "
            "lets all have their turn",
            peers, (long long)options->period, allowed, allowed,
            (peers * cod_exchange_fragments(options) * LEAST_STEPS + COD_EXCHANGE_PULLS_MOST - 1) /
                COD_EXCHANGE_PULLS_MOST);
        return true;
    }
    const int least = LEAST_STEPS_ALONE;
    if (options->period < least)
        snprintf(advice, bytes,
                 "a pull takes %d steps at least: of publications every %lld steps about one in %lld is used", least,
                 (long long)options->period, (long long)((least + options->period - 1) / options->period));
    return options->period < least;
}
