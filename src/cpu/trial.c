/* Timing of the implementations of a convolution, on memory of its own. */
#include "cpu/tune_internal.h"

#include "core/memory.h"
#include "core/trace.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

enum { LEAST_PICTURES = 4, LEAST_LINES = 16, LEAST_PIXELS = 4096, MOST_PIXELS = 16384, LEAST_ROUNDS = 3 };
static const double most_work = 0.5e9; /* multiplications and additions for each thread: a few milliseconds */
static const double enough_s = 0.01, hopeless = 2, least_gain = 0.95;

typedef struct trial {
    cod_op op;
    cod_buffer buffers[COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS];
    size_t count;
    double share; /**< of the op's work */
} trial;

static void give_buffer(trial *t, cod_view *view)
{
    if (!cpu_present(view))
        return;
    cod_buffer *buffer = &t->buffers[t->count++];
    const int64_t elements = view->shape.n * view->shape.h * view->shape.w * view->pixel_stride;
    buffer->bytes = (size_t)elements * cod_dtype_bytes(view->dtype);
    view->buffer = buffer;
    view->offset = 0;
}

/** Memory for all buffers, which trials have one after another: fresh memory costs more than many a trial. */
static cod_status give_memory(cod_device *device, trial *t)
{
    size_t bytes = 0;
    for (size_t i = 0; i < t->count; i++)
        bytes += cod_align_up(t->buffers[i].bytes);
    if (bytes > device->trial_bytes) {
        cpu_trial_forget(device);
        COD_TRY(cod_aligned_alloc(&device->trial_memory, bytes));
        device->trial_bytes = bytes;
    }
    char *at = device->trial_memory;
    memset(at, 0, bytes); /* pages that were never written share one of zeros */
    for (size_t i = 0; i < t->count; i++) {
        t->buffers[i].host = at;
        at += cod_align_up(t->buffers[i].bytes);
    }
    return COD_OK;
}

void cpu_trial_forget(cod_device *device)
{
    cod_aligned_free(device->trial_memory);
    device->trial_memory = NULL;
    device->trial_bytes = 0;
}

static bool is_weights(const cod_op *op, bool output, size_t i)
{
    return op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? output : !output && i > 0;
}

static bool keeps_size(const cod_op *op)
{
    const cod_shape w = (op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? &op->outputs[0] : &op->inputs[1])->shape;
    return op->attr.stride_h == 1 && 2 * op->attr.pad_h == w.h - 1;
}

/**
 * How many pictures tell which implementation is fastest for all: of small ones many, since weights are loaded or their
 * gradients added up once for all pictures, and blocks are filled by several.
 */
static int64_t choose_pictures(const cod_op *op, int threads)
{
    const bool weights = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS, data = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const cod_shape w = (weights ? &op->outputs[0] : &op->inputs[1])->shape;
    const cod_view *y = weights ? &op->inputs[1] : data ? &op->inputs[0] : &op->outputs[0];
    const int64_t shuffle = cod_op_shuffle(&op->attr), pixels = y->shape.h * y->shape.w / (shuffle * shuffle);
    const double work = 2.0 * (double)pixels * (double)cod_shape_count(w);
    const int64_t least = 2 * threads > LEAST_PICTURES ? 2 * threads : LEAST_PICTURES;
    const int64_t wanted = cpu_least((LEAST_PIXELS + pixels - 1) / pixels, (int64_t)(most_work * threads / work));
    return cpu_least(y->shape.n, cpu_greatest(least, wanted));
}

static cod_shape input_of(const cod_op *op)
{
    return (op->kind == COD_OP_CONV2D_BACKWARD_DATA ? &op->outputs[0] : &op->inputs[0])->shape;
}

/** A part of the batch, and the upper part of large pictures, is enough to tell which is faster. */
static int64_t choose_lines(const cod_op *op)
{
    const cod_shape x = input_of(op);
    const int64_t lines = cpu_greatest(MOST_PIXELS / x.w, LEAST_LINES);
    return keeps_size(op) && lines < x.h ? lines : x.h;
}

double cpu_trial_share(const cod_op *op, int threads)
{
    const cod_shape x = input_of(op);
    return (double)choose_pictures(op, threads) / (double)x.n * (double)choose_lines(op) / (double)x.h;
}

static cod_status trial_init(cod_device *device, trial *t, const cod_op *op)
{
    const int threads = device->threads;
    const int64_t pictures = choose_pictures(op, threads), lines = choose_lines(op), height = input_of(op).h;
    *t = (trial){.op = *op, .share = cpu_trial_share(op, threads)};
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const bool output = i >= COD_OP_MAX_INPUTS;
        const size_t k = output ? i - COD_OP_MAX_INPUTS : i;
        cod_view *view = output ? &t->op.outputs[k] : &t->op.inputs[k];
        if (!is_weights(op, output, k)) {
            view->shape.n = pictures;
            if (lines < height)
                view->shape.h = view->shape.h / height * lines; /* shuffled pictures are a multiple as high */
        }
        give_buffer(t, view);
    }
    return give_memory(device, t);
}

/** How often another process has taken a processor from a thread of this one. */
static long preemptions(void)
{
    struct rusage used;
    return getrusage(RUSAGE_SELF, &used) == 0 ? used.ru_nivcsw : 0;
}

/** Times a run that nobody interrupts, if one of a few attempts is such; the shortest otherwise. */
static cod_status time_run(cod_plan *plan, double *seconds)
{
    enum { ATTEMPTS = 4 };
    *seconds = INFINITY;
    for (int i = 0; i < ATTEMPTS; i++) {
        const long before = preemptions();
        const double begin = cod_clock_s();
        COD_TRY(plan->run(plan));
        *seconds = fmin(*seconds, cod_clock_s() - begin);
        if (preemptions() == before)
            break;
    }
    return COD_OK;
}

static void drop(cpu_contender *one)
{
    cpu_plan_destroy(one->plan);
    one->plan = NULL;
}

/**
 * Seconds to prepare a plan after an update of its weights, as they weigh in a part of the batch. What updates write
 * themselves costs next to nothing.
 */
static cod_status time_prepare(cod_plan *plan, const trial *t, double *seconds)
{
    enum { RUNS = 2 };
    *seconds = plan->prepare != NULL && plan->pack == NULL ? INFINITY : 0;
    for (int i = 0; i < RUNS && plan->prepare != NULL; i++) {
        const double begin = cod_clock_s();
        COD_TRY(plan->prepare(plan));
        *seconds = fmin(*seconds, t->share * (cod_clock_s() - begin));
        if (plan->pack != NULL)
            break;
    }
    return COD_OK;
}

/** Runs it once, with its share of preparation. */
static cod_status run_once(cpu_contender *one)
{
    COD_TRY(time_run(one->plan, &one->least_s));
    one->least_s += one->prepare_s;
    return COD_OK;
}

/**
 * Makes all plans and runs each once, for its memory, which may take it long. Who takes several times as long as
 * another one also when it runs again is out.
 */
static cod_status warm_up(cod_device *device, const trial *t, const cpu_candidate *const *candidates, size_t count,
                          cpu_contender *all)
{
    double best_s = INFINITY;
    for (size_t i = 0; i < count; i++) {
        COD_TRY(cpu_plan_create(device, &t->op, candidates[i]->create, &all[i].plan));
        COD_TRY(time_prepare(all[i].plan, t, &all[i].prepare_s));
        COD_TRY(run_once(&all[i]));
        best_s = fmin(best_s, all[i].least_s);
    }
    for (size_t i = 0; i < count; i++) {
        if (all[i].least_s > hopeless * best_s)
            COD_TRY(run_once(&all[i]));
        if (all[i].least_s > hopeless * best_s)
            drop(&all[i]);
    }
    return COD_OK;
}

/** All that are left once each, again and again. */
static cod_status run_rounds(cpu_contender *all, size_t count, int *rounds)
{
    const double begin = cod_clock_s();
    for (*rounds = 0; *rounds < CPU_TRIAL_ROUNDS; ++*rounds) {
        if (*rounds >= LEAST_ROUNDS && cod_clock_s() - begin > enough_s)
            break;
        for (size_t i = 0; i < count; i++) {
            if (all[i].plan == NULL)
                continue;
            double *s = &all[i].s[*rounds];
            COD_TRY(time_run(all[i].plan, s));
            *s += all[i].prepare_s;
            all[i].least_s = *rounds == 0 ? *s : fmin(all[i].least_s, *s);
        }
    }
    return COD_OK;
}

void cpu_trial_judge(const cpu_contender *all, size_t count, size_t rule, cpu_verdict *v)
{
    size_t best = rule;
    for (size_t i = 0; i < count; i++) {
        v->seconds[i] = all[i].least_s;
        if (all[i].least_s < all[best].least_s)
            best = i;
    }
    double longer = 0;
    for (int r = 0; r < v->rounds; r++) {
        v->agreed += all[rule].plan == NULL || all[best].s[r] <= all[rule].s[r];
        longer += all[best].s[r] / all[best].least_s - 1;
    }
    v->noise = longer / v->rounds;
    const bool is_sure = v->agreed >= v->rounds - 1 && all[best].least_s < least_gain * all[rule].least_s;
    v->chosen = is_sure ? best : rule;
}

cod_status cpu_trial(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                     size_t rule, cpu_verdict *verdict)
{
    trial t;
    cpu_contender all[COD_CPU_MOST_CHOICES] = {{0}};
    const size_t scratch = device->scratch_bytes;
    *verdict = (cpu_verdict){.chosen = rule};
    cod_status status = trial_init(device, &t, op);
    COD_THEN(status, warm_up(device, &t, candidates, count, all));
    COD_THEN(status, run_rounds(all, count, &verdict->rounds));
    if (status == COD_OK) {
        cpu_trial_judge(all, count, rule, verdict);
        const cpu_contender *chosen = &all[verdict->chosen];
        verdict->expected_s = (chosen->least_s - chosen->prepare_s) / t.share;
    }
    for (size_t i = 0; i < count; i++)
        drop(&all[i]);
    /* What a loser needed is given back. */
    if (status == COD_OK && device->scratch_bytes > scratch) {
        cod_aligned_free(device->scratch);
        device->scratch = NULL;
        device->scratch_bytes = 0;
        status = cpu_device_need_scratch(device, scratch);
    }
    return status;
}
