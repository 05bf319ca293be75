/*
 * What makes exact the fastest. vpmaddubsw adds two u8 x s8 products in 16 bits, and saturates when
 * they do not fit; more of its results may be added in 16 bits if they fit, too. Over T quads, one
 * 16-bit lane adds 2 T products. Let P be the sum of the lane's positive weights and Q minus the sum
 * of the negative ones: for every A with values in 0 .. amax each partial sum, in any order, lies
 * within -amax Q .. amax P. So P, Q <= 32767 / amax proves that nothing saturates or wraps:
 *
 *     amax 255: P, Q <= 128        amax 127: P, Q <= 258
 *
 * Where few lanes break the bound, the excess is taken out of a weight and kept in a residual, which
 * the kernel multiplies as further quads: always exact, worth it when sparse. Which weight of a lane
 * gives way is chosen so that columns share a k, since a value of k costs as much for one column as
 * for eight. Of all choices the cheapest by predicted cycles is taken.
 */
#include "pack.h"

enum { T_KINDS = 3 };
static const dot_kind t_dot[T_KINDS] = { DOT_T1, DOT_T2, DOT_T4 };

/* Cycles of a residual on Zen 4, for a tile of 8 rows: to get there, and for each quad in a T kernel
 * and in a W kernel, whose gather goes by way of memory. */
static const float RESIDUAL_CYCLES = 12.0f, T_QUAD_CYCLES = 18.0f, W_QUAD_CYCLES = 40.0f;

static float residual_cycles(int entries, dot_kind dot)
{
    if (!entries) return 0;
    return RESIDUAL_CYCLES + (float)((entries + 3) / 4) * (dot == DOT_W ? W_QUAD_CYCLES : T_QUAD_CYCLES);
}

static int limit_of(int amax) { return 32767 / amax; }

/* The larger of P and Q of each 16-bit lane of `quads` quads starting at `b`: lane 2 j + h is column j,
 * values 2 h, 2 h + 1. */
static void lane_peaks(const int8_t *b, int cols, int quads, int peak[2 * NR])
{
    int p[2 * NR] = { 0 }, q[2 * NR] = { 0 };
    for (int t = 0; t < quads; t++)
        for (int i = 0; i < 4 * cols; i++) {
            const int v = b[4 * cols * t + i];
            p[i / 2] += v > 0 ? v : 0;
            q[i / 2] -= v < 0 ? v : 0;
        }
    for (int l = 0; l < 2 * cols; l++) peak[l] = p[l] > q[l] ? p[l] : q[l];
}

static int largest(const int *x, int n, int least)
{
    for (int i = 0; i < n; i++) least = x[i] > least ? x[i] : least;
    return least;
}

#if OCTET_X86
#include <immintrin.h>

/* The same for a whole panel at once, all three T: only the peaks. */
__attribute__((target("avx2")))
static int64_t peaks_avx2(const int8_t *b, int64_t quads, int peak[T_KINDS])
{
    const __m256i ones = _mm256_set1_epi8(1), zero = _mm256_setzero_si256();
    __m256i m1 = zero, m2 = zero, m4 = zero;
    int64_t t = 0;
    for (; t + 4 <= quads; t += 4) {
        __m256i p[4], q[4];
        for (int i = 0; i < 4; i++) {
            const __m256i v = _mm256_loadu_si256((const __m256i *)(b + 32 * (t + i)));
            const __m256i pos = _mm256_max_epi8(v, zero), neg = _mm256_sub_epi8(zero, _mm256_min_epi8(v, zero));
            p[i] = _mm256_maddubs_epi16(pos, ones);
            q[i] = _mm256_maddubs_epi16(neg, ones); /* 128 as u8 */
            m1 = _mm256_max_epi16(m1, _mm256_max_epi16(p[i], q[i]));
        }
        const __m256i p01 = _mm256_add_epi16(p[0], p[1]), p23 = _mm256_add_epi16(p[2], p[3]);
        const __m256i q01 = _mm256_add_epi16(q[0], q[1]), q23 = _mm256_add_epi16(q[2], q[3]);
        m2 = _mm256_max_epi16(m2, _mm256_max_epi16(_mm256_max_epi16(p01, p23), _mm256_max_epi16(q01, q23)));
        m4 = _mm256_max_epi16(m4, _mm256_max_epi16(_mm256_add_epi16(p01, p23), _mm256_add_epi16(q01, q23)));
    }
    const __m256i m[T_KINDS] = { m1, m2, m4 };
    for (int i = 0; i < T_KINDS; i++) {
        int16_t lane[16];
        _mm256_storeu_si256((__m256i *)(void *)lane, m[i]);
        for (int j = 0; j < 16; j++) peak[i] = lane[j] > peak[i] ? lane[j] : peak[i];
    }
    return t;
}

/* broken_lanes of a whole panel's group. */
__attribute__((target("avx2")))
static unsigned broken_avx2(const int8_t *b, int t, int limit)
{
    const __m256i ones = _mm256_set1_epi8(1), zero = _mm256_setzero_si256();
    __m256i p = zero, q = zero;
    for (int i = 0; i < t; i++) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(b + 32 * i));
        p = _mm256_add_epi16(p, _mm256_maddubs_epi16(_mm256_max_epi8(v, zero), ones));
        q = _mm256_add_epi16(q, _mm256_maddubs_epi16(_mm256_sub_epi8(zero, _mm256_min_epi8(v, zero)), ones));
    }
    const __m256i over = _mm256_cmpgt_epi16(_mm256_max_epi16(p, q), _mm256_set1_epi16((short)limit));
    /* 16 lanes of two equal bytes -> 16 bits, in order */
    const __m128i lanes = _mm_packs_epi16(_mm256_castsi256_si128(over), _mm256_extracti128_si256(over, 1));
    return (unsigned)_mm_movemask_epi8(lanes);
}
#endif

/* The tail of k, as a quad with zeros: its columns hold k % 4 values. */
static void tail_as_quad(const int8_t *tail, int cols, int rest, int8_t quad[4 * NR])
{
    memset(quad, 0, 4 * NR);
    for (int j = 0; j < cols; j++) memcpy(quad + 4 * j, tail + rest * j, (size_t)rest);
}

void panel_peaks(const int8_t *panel, int cols, int64_t k, int peak[T_KINDS])
{
    const int64_t quads = k / 4;
    int64_t from = 0;
    memset(peak, 0, T_KINDS * sizeof *peak);
#if OCTET_X86
    if (cols == NR && (cpu_features() & CPU_AVX2)) from = peaks_avx2(panel, quads, peak);
#endif
    int lanes[2 * NR];
    for (int i = 0; i < T_KINDS; i++) { /* kernels group quads as whole groups, and leave the rest single */
        const int t = 1 << i;
        for (int64_t g = from; g + t <= quads; g += t) {
            lane_peaks(panel + 4 * cols * g, cols, t, lanes);
            peak[i] = largest(lanes, 2 * cols, peak[i]);
        }
    }
    if (k % 4) {
        int8_t quad[4 * NR];
        tail_as_quad(panel + 4 * cols * quads, cols, (int)(k % 4), quad);
        lane_peaks(quad, cols, 1, lanes);
        peak[0] = largest(lanes, 2 * cols, peak[0]);
    }
    /* what is left over runs one quad at a time, so T1's bound goes for every T */
    for (int i = 1; i < T_KINDS; i++) peak[i] = peak[i] > peak[0] ? peak[i] : peak[0];
}

dot_kind proven_dot(const int peak[T_KINDS], int amax, unsigned cpu)
{
    for (int i = T_KINDS - 1; i >= 0; i--)
        if (peak[i] <= limit_of(amax) && !family_refuses(&families[t_dot[i]], cpu)) return t_dot[i];
    return DOT_W;
}

/* ---- taking the excess out ---- */

/* The panel under work, and where its weights are: value (k, column). */
typedef struct work {
    int8_t *panel;
    int     cols;
    int64_t k;
} work;

static int8_t *weight(const work *w, int64_t k, int col)
{
    const int64_t quad = k / 4, whole = w->k / 4;
    if (quad < whole) return w->panel + 4 * w->cols * quad + 4 * col + k % 4;
    return w->panel + 4 * w->cols * whole + (w->k % 4) * col + k % 4;
}

/* What the residual of a row of k is, while it is being collected: rest[column]. */
typedef struct taken { int64_t k; int8_t rest[NR]; } taken;

/* By how much n weights of one lane and column exceed the limit: > 0 the positive ones, < 0 the negative. */
static int excess(int v[8][NR], int n, int col, int limit)
{
    int p = 0, q = 0;
    for (int i = 0; i < n; i++) {
        p += v[i][col] > 0 ? v[i][col] : 0;
        q -= v[i][col] < 0 ? v[i][col] : 0;
    }
    return p > limit ? p - limit : q > limit ? limit - q : 0;
}

/* What a weight can give towards an excess of its sign. */
static int give(int v, int e)
{
    if (e > 0) return v <= 0 ? 0 : v < e ? v : e;
    return v >= 0 ? 0 : v > e ? v : e;
}

/* Makes one group's lane, values ks of k, fit in all columns; appends to list, returns the new length
 * or -1 if full. The k that repairs most columns goes first; of those, the one that takes most. */
static int repair(const work *w, const int64_t *ks, int n, int limit, taken *list, int length, int room)
{
    int v[8][NR], e[NR];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w->cols; j++) v[i][j] = *weight(w, ks[i], j);
    for (;;) {
        int best = -1, best_fixed = 0, best_sum = 0;
        for (int j = 0; j < w->cols; j++) e[j] = excess(v, n, j, limit);
        for (int i = 0; i < n; i++) {
            int fixed = 0, sum = 0;
            for (int j = 0; j < w->cols; j++) {
                const int g = give(v[i][j], e[j]);
                fixed += g && g == e[j];
                sum += g < 0 ? -g : g;
            }
            if (sum > 0 && (fixed > best_fixed || (fixed == best_fixed && sum > best_sum))) {
                best = i;
                best_fixed = fixed;
                best_sum = sum;
            }
        }
        if (best < 0) return length;
        if (length == room) return -1;
        taken *t = &list[length++];
        t->k = ks[best];
        memset(t->rest, 0, sizeof t->rest);
        for (int j = 0; j < w->cols; j++) {
            const int g = give(v[best][j], e[j]);
            t->rest[j] = (int8_t)g;
            v[best][j] -= g;
            *weight(w, ks[best], j) = (int8_t)v[best][j];
        }
    }
}

/* Which lanes of a group break the limit, as bits 2 column + half. */
static unsigned broken_lanes(const work *w, int64_t quad, int t, int limit)
{
    const int8_t *b = w->panel + 4 * w->cols * quad;
#if OCTET_X86
    if (w->cols == NR && (cpu_features() & CPU_AVX2)) return broken_avx2(b, t, limit);
#endif
    int lanes[2 * NR];
    unsigned broken = 0;
    lane_peaks(b, w->cols, t, lanes);
    for (int l = 0; l < 2 * w->cols; l++) broken |= (unsigned)(lanes[l] > limit) << l;
    return broken;
}

enum { LOW_HALVES = 0x5555, HIGH_HALVES = 0xaaaa };

/* Repairs group after group; the quads that are left over, and the tail of k, run one at a time. */
static int repair_panel(const work *w, int t, int limit, taken *list, int room)
{
    int length = 0;
    const int64_t whole = w->k / 4 / t * t;
    for (int64_t g = 0; 4 * g < w->k;) {
        const int quads = g < whole ? t : 1;
        const unsigned broken = 4 * (g + quads) <= w->k ? broken_lanes(w, g, quads, limit) : ~0u;
        for (int half = 0; half < 2; half++) {
            if (!(broken & (half ? HIGH_HALVES : LOW_HALVES))) continue;
            int64_t ks[8];
            int n = 0;
            for (int i = 0; i < quads; i++)
                for (int b = 0; b < 2; b++)
                    if (4 * (g + i) + 2 * half + b < w->k) ks[n++] = 4 * (g + i) + 2 * half + b;
            length = repair(w, ks, n, limit, list, length, room);
            if (length < 0) return -1;
        }
        g += quads;
    }
    return length;
}

static void put_back(const work *w, const taken *list, int length)
{
    for (int i = 0; i < length; i++)
        for (int j = 0; j < w->cols; j++) {
            int8_t *v = weight(w, list[i].k, j);
            *v = (int8_t)(*v + list[i].rest[j]);
        }
}

/* repair visits a group's k in any order, and the same k twice if both signs broke: k ascending. */
static void sort_taken(taken *list, int length)
{
    for (int i = 1; i < length; i++)
        for (int j = i; j > 0 && list[j].k < list[j - 1].k; j--) {
            const taken t = list[j];
            list[j] = list[j - 1];
            list[j - 1] = t;
        }
}

/* May `w` stand beside what the lane's other place holds? Then vpmaddubsw cannot saturate on the pair. */
static bool fits_beside(const int8_t *quad, int place, const int8_t w[NR])
{
    for (int j = 0; j < NR; j++) {
        const int other = quad[4 * j + (place ^ 1)], v = w[j];
        if ((v > 0 && other > 0 && v + other > 128) || (v < 0 && other < 0 && v + other < -128)) return false;
    }
    return true;
}

/* Quads of four entries each: an entry goes to the first free place that its lane's partner allows. */
static void append(residual *rest, residual_span *spans, const taken *list, int length, int64_t k, int32_t kc)
{
    enum { OPEN = 4 }; /* quads that may still have a free place */
    const uint32_t before = rest->quads;
    int i = 0;
    for (int64_t block = 0; block * kc < k; block++) {
        const uint32_t first = rest->quads;
        uint8_t used[OPEN] = { 0 };
        for (; i < length && list[i].k < (block + 1) * kc; i++) {
            const int64_t at_k = list[i].k;
            uint32_t q = rest->quads - first > OPEN ? rest->quads - OPEN : first;
            int place = -1;
            for (; q < rest->quads && place < 0; q++)
                for (int p = 0; p < 4 && place < 0; p++)
                    if (!(used[q % OPEN] >> p & 1) && fits_beside(rest->w + (size_t)RES_W * q, p, list[i].rest)) place = p;
            if (place >= 0) q--;
            else {
                q = rest->quads++;
                place = 0;
                used[q % OPEN] = 0;
                memset(rest->w + (size_t)RES_W * q, 0, RES_W);
            }
            residual_k *ks = rest->k + 4 * (size_t)q;
            const residual_k here = { (uint16_t)(at_k / 4), (uint16_t)(at_k % 4 * 32) };
            if (!used[q % OPEN]) /* places that stay free point somewhere harmless */
                for (int p = 0; p < 4; p++) ks[p] = here;
            ks[place] = here;
            used[q % OPEN] |= (uint8_t)(1 << place);
            for (int j = 0; j < NR; j++) rest->w[(size_t)RES_W * q + 4 * (size_t)j + (size_t)place] = list[i].rest[j];
        }
        if (k > kc) spans[1 + block] = (residual_span){ first, rest->quads - first };
    }
    spans[0] = (residual_span){ before, rest->quads - before };
}

/* At least how many entries repair would need, or more than `stop`: a quick look before the work. A
 * broken lane needs one for every 127 of its worst column's excess. */
static int64_t least_entries(const work *w, int t, int limit, int64_t stop)
{
    int lanes[2 * NR];
    int64_t entries = 0;
    for (int64_t g = 0; 4 * (g + t) <= w->k && entries <= stop; g += t) {
        if (!broken_lanes(w, g, t, limit)) continue;
        int worst[2] = { 0, 0 };
        lane_peaks(w->panel + 4 * w->cols * g, w->cols, t, lanes);
        for (int l = 0; l < 2 * w->cols; l++)
            if (lanes[l] - limit > worst[l & 1]) worst[l & 1] = lanes[l] - limit;
        entries += ceil_div(worst[0], 127) + ceil_div(worst[1], 127);
    }
    return entries;
}

/* Predicted cycles of a tile of 8 rows, of full-range A and of 7-bit A together. */
static float predict(const work *w, int entries, unsigned cpu)
{
    const float macs = (float)w->k * 8 * NR;
    float cycles = 0;
    int peak[T_KINDS];
    panel_peaks(w->panel, w->cols, w->k, peak);
    for (int level = 0; level < AMAX_LEVELS; level++) {
        const dot_kind dot = proven_dot(peak, amax_level[level], cpu);
        cycles += macs / families[dot].rate + residual_cycles(entries, dot);
    }
    return cycles;
}

panel_info prove_panel(int8_t *panel, int cols, int64_t k, int32_t kc, unsigned cpu, residual *rest, residual_span *spans)
{
    enum { TAKEN = 512 };
    taken list[TAKEN];
    const work w = { panel, cols, k };
    /* every entry a quad of its own, at worst */
    const int64_t room = k / 4 > UINT16_MAX ? 0 : min64(TAKEN, (int64_t)rest->room - rest->quads);
    float least = predict(&w, 0, cpu);
    int length = 0, best_t = 0, best_limit = 0;

    for (int level = 0; level < AMAX_LEVELS && room > 0; level++)
        for (int i = 0; i < T_KINDS; i++) {
            const int t = 1 << i, limit = limit_of(amax_level[level]);
            if (family_refuses(&families[t_dot[i]], cpu)) continue;
            /* what it could cost at best says how many entries it could afford */
            const float macs = (float)k * 8 * NR, best = (level ? macs / families[DOT_T1].rate : macs / families[t_dot[i]].rate)
                                                       + macs / families[DOT_T4].rate;
            const int64_t afford = min64(room, (int64_t)((least - best) / (2 * T_QUAD_CYCLES) * 4));
            if (afford <= 0 || least_entries(&w, t, limit, afford) > afford) continue;
            const int got = repair_panel(&w, t, limit, list, (int)afford);
            if (got >= 0) {
                const float cost = predict(&w, got, cpu);
                if (cost < least) {
                    least = cost;
                    best_t = t;
                    best_limit = limit;
                }
            }
            put_back(&w, list, got < 0 ? (int)afford : got);
        }
    if (best_t) length = repair_panel(&w, best_t, best_limit, list, TAKEN);
    sort_taken(list, length);
    append(rest, spans, list, length, k, kc);
    int peak[T_KINDS];
    panel_peaks(panel, cols, k, peak);
    panel_info info = { { 0 }, (uint16_t)length };
    for (int level = 0; level < AMAX_LEVELS; level++) info.dot[level] = (uint8_t)proven_dot(peak, amax_level[level], cpu);
    return info;
}
