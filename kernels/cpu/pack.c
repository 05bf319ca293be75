/*
 * A packed B is one blob without pointers:
 *
 *   blob | panels | column sums | scales? | zeros? | info? | spans? | rest weights | rest ks | slack
 *
 * Sections start on cache lines. Column sums are s32, with k * zero_b subtracted, so that
 * sum - zero_a * column sum - zero_b * row sum is the product of the shifted operands. They will
 * also be the checksum row that predicts the row sums of C. Info and spans exist from k = 16 on:
 * below, one dot for all panels is all that is known, and space is not wasted on it.
 */
#include "pack.h"

#include "format.h"

enum { SLACK = 64, INFO_FROM_K = 16 };
static const char magic[8] = "octetB\1";
static const uint32_t byte_order = 0x01020304;

/* Where each section starts, but for the residual, whose size depends on the values. */
typedef struct layout { int64_t panels, sums, scales, zeros, info, spans, rest, span_count; } layout;

static int64_t line_up(int64_t x) { return round_up(x, 64); }

static layout lay_out(int64_t n, int64_t k, int32_t kc, bool scales, bool zeros)
{
    const int64_t p = panels_of(n, NR), column = line_up(4 * NR * p);
    layout l = { 0 };
    l.span_count = span_count(k, kc);
    l.panels = line_up(sizeof(blob));
    l.sums = l.panels + line_up(p ? (p - 1) * panel_stride(k) + k * min64(NR, n - (p - 1) * NR) : 0);
    int64_t at = l.sums + column;
    if (scales) { l.scales = at; at += column; }
    if (zeros) { l.zeros = at; at += column; }
    if (k >= INFO_FROM_K) {
        l.info = at;
        at += line_up(p * (int64_t)sizeof(panel_info));
        l.spans = at;
        at += line_up(p * l.span_count * (int64_t)sizeof(residual_span));
    }
    l.rest = at;
    return l;
}

bool packed_bound(const b_shape *s, bool zeros_by_column, size_t *bytes)
{
    const int64_t n = s->columns, k = s->k;
    /* 1.15 k n + 8 n + 4096, and 4 n for zero points by column; k n at most 2^59 keeps all sums here in range */
    int64_t kn;
    if (!mul_ok(n, k, &kn) || kn > INT64_C(1) << 59 || n > INT64_C(1) << 56 || k > INT64_C(1) << 56) return false;
    if (s->floating) {
        if (kn > INT64_C(1) << 56) return false;
        *bytes = (size_t)(float_lay_out(s, s->type == OCTET_S8 || format_of(s->type)->bytes == 0).end + SLACK);
        return true;
    }
    *bytes = (size_t)((kn + kn / 100 * 15 + 8 * n + (zeros_by_column ? 4 * n : 0) + 4096) / 64 * 64);
    return true;
}

static uint64_t checksum(const void *memory, size_t bytes)
{
    const uint8_t *p = memory;
    uint64_t lane[4] = { 1, 2, 3, 4 };
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32)
        for (int j = 0; j < 4; j++) {
            uint64_t w;
            memcpy(&w, p + i + 8 * (size_t)j, 8);
            lane[j] = (lane[j] ^ w) * UINT64_C(0x9e3779b97f4a7c15);
            lane[j] ^= lane[j] >> 29;
        }
    uint64_t h = bytes;
    for (; i < bytes; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    for (int j = 0; j < 4; j++) h = (h ^ lane[j]) * UINT64_C(0xbf58476d1ce4e5b9), h ^= h >> 31;
    return h;
}

static uint64_t blob_checksum(const blob *b)
{
    blob head = *b;
    head.checksum = 0;
    return checksum(&head, sizeof head) ^ checksum((const char *)b + sizeof head, b->bytes - sizeof head);
}

void blob_seal(blob *b) { b->checksum = blob_checksum(b); }

/* ---- packing ---- */

/* Column sums of a panel of s8 quads with a compact tail. */
static void panel_sums(const int8_t *panel, int cols, int64_t k, int32_t *sum)
{
    const int64_t whole = k / 4;
    const int rest = (int)(k % 4);
    uint32_t acc[4 * NR] = { 0 }; /* wraps like every sum */
    if (cols == NR) { /* constant bounds: the compiler's vectors do the rest */
        for (int64_t q = 0; q < whole; q++)
            for (int i = 0; i < 4 * NR; i++) acc[i] += (uint32_t)(int32_t)panel[4 * NR * q + i];
    } else {
        for (int64_t q = 0; q < whole; q++)
            for (int i = 0; i < 4 * cols; i++) acc[i] += (uint32_t)(int32_t)panel[4 * cols * q + i];
    }
    for (int j = 0; j < NR; j++) {
        uint32_t s = acc[4 * j] + acc[4 * j + 1] + acc[4 * j + 2] + acc[4 * j + 3];
        for (int t = 0; j < cols && t < rest; t++) s += (uint32_t)(int32_t)panel[4 * cols * whole + rest * j + t];
        sum[j] = (int32_t)s;
    }
}

/* Quads of a source that is not plain, or of a gate's panels: gathered a stretch of k at a time. */
static bool gather_panel(const source *s, const b_shape *shape, int64_t j0, int cols, int64_t k, int8_t *out)
{
    enum { STRETCH = 512 };
    uint8_t bytes[NR * STRETCH];
    int16_t wide[NR * STRETCH];
    for (int64_t k0 = 0; k0 < k; k0 += STRETCH) {
        const int64_t kn = min64(STRETCH, k - k0);
        for (int j = 0; j < cols; j++) {
            const int64_t line = b_line(shape, j0 + j);
            if (line >= 0) gather_lines(s, line, 1, k0, kn, bytes + j * STRETCH, STRETCH);
            else memset(bytes + j * STRETCH, 0, (size_t)kn);
            if (line >= 0 && s->weights) gather_wide(s, line, 1, k0, kn, wide + j * STRETCH, STRETCH);
        }
        if (s->weights) {
            for (int j = 0; j < cols; j++)
                for (int64_t p = 0; p < kn; p++)
                    if (wide[j * STRETCH + p] != (int8_t)bytes[j * STRETCH + p]) return false;
        }
        pack_quads(bytes, STRETCH, 1, cols, kn, 0, true, (uint8_t *)out + k0 * cols);
    }
    return true;
}

/* A value for each column, as packed. */
static void by_column(const b_shape *s, const void *given, void *out)
{
    for (int64_t j = 0; j < s->columns; j++) {
        const int64_t line = b_line(s, j);
        if (line >= 0) memcpy((char *)out + 4 * j, (const char *)given + 4 * line, 4);
    }
}

static void begin_blob(const b_shape *s, int32_t kc, const octet_quant *q, int64_t bytes, blob *head)
{
    memset(head, 0, (size_t)bytes);
    memcpy(head->magic, magic, sizeof magic);
    head->version = BLOB_VERSION;
    head->order = byte_order;
    head->n = s->columns;
    head->given_n = s->n;
    head->k = s->k;
    head->kc = kc;
    head->group = s->group < s->k ? s->group : 0;
    head->type = (uint8_t)s->type;
    head->nr = (uint8_t)s->nr;
    head->floating = s->floating;
    head->gated = s->gated;
    head->per_column_scale = q->scales != NULL;
    head->per_column_zero = q->zeros != NULL;
    head->has_zeros = q->zeros || q->zero;
}

static void pack_floating(const source *b, const b_shape *s, const octet_quant *q, bool sealed, void *memory, size_t *bytes)
{
    blob *head = memory;
    const bool zeros = q->zeros || q->zero != (s->type == OCTET_U4 ? 8 : 0); /* u4 with 8 is s4 without */
    const float_layout l = float_lay_out(s, zeros);
    begin_blob(s, KC_MIN, q, l.panels, head);
    head->has_zeros = zeros;
    head->panels = (uint64_t)l.panels;
    head->scales = (uint64_t)l.scales;
    head->zeros = (uint64_t)l.zeros;
    head->bytes = (uint64_t)(l.end + SLACK);
    float_panels(b, s, q, &l, memory);
    memset((char *)memory + l.end, 0, SLACK);
    if (sealed) blob_seal(head);
    *bytes = (size_t)head->bytes;
}

bool pack_b(const source *b, const b_shape *shape, int32_t kc, const octet_quant *q, bool search, unsigned cpu,
            void *memory, size_t *bytes)
{
    if (shape->floating) {
        pack_floating(b, shape, q, search, memory, bytes);
        return true;
    }
    const int64_t n = shape->columns, k = shape->k;
    const layout l = lay_out(n, k, kc, q->scales, q->zeros);
    const int64_t p = panels_of(n, NR);
    char *base = memory;
    blob *head = memory;
    size_t bound = 0;
    packed_bound(shape, q->zeros, &bound);

    begin_blob(shape, kc, q, l.panels, head);
    head->panels = (uint64_t)l.panels;
    head->sums = (uint64_t)l.sums;
    head->scales = (uint64_t)l.scales;
    head->zeros = (uint64_t)l.zeros;
    head->info = (uint64_t)l.info;
    head->spans = (uint64_t)l.spans;
    for (int i = 0; i < NR; i++) {
        head->scale[i] = q->scale == 0.0f ? 1.0f : q->scale;
        head->zero[i] = q->zero;
    }
    memset(base + l.sums, 0, (size_t)(l.rest - l.sums));
    if (q->scales) by_column(shape, q->scales, base + l.scales);
    if (q->zeros) by_column(shape, q->zeros, base + l.zeros);

    /* whatever the bound leaves is for residuals */
    residual rest = { 0 };
    const int64_t spare = (int64_t)bound - l.rest - 2 * 64 - SLACK;
    rest.room = search && l.spans && spare > 0 ? (uint32_t)min64(spare / (RES_W + RES_K), UINT32_MAX / 8) : 0;
    rest.w = (int8_t *)base + l.rest;
    rest.k = (residual_k *)(void *)(base + l.rest + RES_W * (int64_t)rest.room);

    int all_peaks[3] = { 0 };
    int32_t *sums = (int32_t *)(void *)(base + l.sums);
    for (int64_t j = 0; j < p; j++) {
        const int cols = (int)min64(NR, n - j * NR);
        int8_t *panel = (int8_t *)base + l.panels + j * panel_stride(k);
        if (source_is_plain(b) && !shape->gated)
            pack_quads((const uint8_t *)b->views[0].base + j * NR * b->views[0].line_stride, b->views[0].line_stride,
                       b->views[0].k_stride, cols, k, 0, true, (uint8_t *)panel);
        else if (!gather_panel(b, shape, j * NR, cols, k, panel))
            return false;
        if (j + 1 < p) memset(panel + NR * k, 0, (size_t)(panel_stride(k) - NR * k)); /* the gap up to the cache line */
        panel_sums(panel, cols, k, sums + NR * j);
        for (int c = 0; c < cols; c++) {
            const int64_t line = b_line(shape, NR * j + c);
            const int32_t zero = line < 0 ? 0 : q->zeros ? q->zeros[line] : q->zero;
            sums[NR * j + c] = (int32_t)((uint32_t)sums[NR * j + c] - (uint32_t)k * (uint32_t)zero);
        }
        int peak[3];
        if (!l.info || !search) {
            panel_peaks(panel, cols, k, peak);
            for (int i = 0; i < 3; i++) all_peaks[i] = peak[i] > all_peaks[i] ? peak[i] : all_peaks[i];
        }
        if (!l.info) continue;
        panel_info *info = (panel_info *)(void *)(base + l.info) + j;
        residual_span *spans = (residual_span *)(void *)(base + l.spans) + j * l.span_count;
        if (search) *info = prove_panel(panel, cols, k, kc, cpu, &rest, spans);
        else
            for (int level = 0; level < AMAX_LEVELS; level++)
                info->dot[level] = (uint8_t)proven_dot(peak, amax_level[level], cpu);
    }
    for (int level = 0; level < AMAX_LEVELS; level++)
        head->dot[level] = (uint8_t)proven_dot(all_peaks, amax_level[level], cpu);
    /* the end of the last panel, and its gap */
    if (p) {
        const int64_t end = l.panels + (p - 1) * panel_stride(k) + k * min64(NR, n - (p - 1) * NR);
        memset(base + end, 0, (size_t)(l.sums - end));
    }
    head->residual_quads = rest.quads;
    head->res_w = (uint64_t)l.rest;
    const int64_t weights_end = l.rest + RES_W * (int64_t)rest.quads, res_k = line_up(weights_end);
    const int64_t end = res_k + RES_K * (int64_t)rest.quads;
    head->res_k = (uint64_t)res_k;
    memmove(base + res_k, rest.k, (size_t)(end - res_k));
    memset(base + weights_end, 0, (size_t)(res_k - weights_end));
    head->bytes = (uint64_t)line_up(end + SLACK);
    memset(base + end, 0, (size_t)((int64_t)head->bytes - end));
    if (search) blob_seal(head);
    *bytes = (size_t)head->bytes;
    return true;
}

/* ---- loading ---- */

static const char *panels_refuse(const blob *b)
{
    const int64_t n = b->n, k = b->k;
    if (b->kc < KC_MIN || b->kc > KC_MAX || b->kc % 16) return "its blocking is impossible";
    const layout l = lay_out(n, k, b->kc, b->per_column_scale, b->per_column_zero);
    const uint64_t res_k = (uint64_t)line_up(l.rest + RES_W * (int64_t)b->residual_quads);
    if (b->panels != (uint64_t)l.panels || b->sums != (uint64_t)l.sums || b->scales != (uint64_t)l.scales
        || b->zeros != (uint64_t)l.zeros || b->info != (uint64_t)l.info || b->spans != (uint64_t)l.spans
        || b->res_w != (uint64_t)l.rest || b->res_k != res_k
        || b->bytes != (uint64_t)line_up((int64_t)res_k + RES_K * (int64_t)b->residual_quads + SLACK))
        return "its sections do not fit together";
    for (int64_t p = 0; p < blob_panels(b); p++) {
        const panel_info info = blob_info(b, p);
        for (int level = 0; level < AMAX_LEVELS; level++)
            if (info.dot[level] != DOT_W && (info.dot[level] < DOT_T1 || info.dot[level] > DOT_T4)) return "a panel names no kernel";
        for (int64_t i = 0; i < (b->spans ? l.span_count : 0); i++) {
            const residual_span s = blob_spans(b, p)[i];
            if ((uint64_t)s.first + s.quads > b->residual_quads) return "a residual lies outside";
            const int64_t from = i ? (i - 1) * b->kc : 0, to = i ? min64(k, from + b->kc) : k;
            const residual_k *ks = blob_res_k(b) + 4 * (size_t)s.first;
            for (uint32_t q = 0; q < 4 * s.quads; q++) {
                const int64_t at = 4 * ks[q].quad + ks[q].pick / 32;
                if (ks[q].pick % 32 || ks[q].pick > 96 || at < from || at >= to) return "a residual lies outside";
            }
        }
    }
    return NULL;
}

static const char *floats_refuse(const blob *b, const b_shape *s)
{
    const float_layout l = float_lay_out(s, b->zeros != 0);
    if (b->panels != (uint64_t)l.panels || b->scales != (uint64_t)l.scales || b->zeros != (uint64_t)l.zeros
        || b->bytes != (uint64_t)(l.end + SLACK) || (b->has_zeros != 0) != (b->zeros != 0))
        return "its sections do not fit together";
    return NULL;
}

const char *blob_refuses(const void *memory, size_t bytes, const b_shape *s, bool *corrupt)
{
    const blob *b = memory;
    *corrupt = false;
    if (bytes < sizeof *b || b->bytes > bytes || b->bytes < sizeof *b) return "it is truncated";
    if (memcmp(b->magic, magic, sizeof magic)) return "it is no packed operand";
    if (b->version != BLOB_VERSION) return "it is of another version";
    if (b->order != byte_order) return "it is of the other byte order";
    if (b->given_n != s->n || b->k != s->k || b->n != s->columns) return "its n and k are not the plan's";
    if (b->type != s->type || b->floating != s->floating || b->gated != s->gated || b->nr != s->nr || b->group != (s->group < s->k ? s->group : 0))
        return "its type, group or gate is not the plan's";
    const char *why = s->floating ? floats_refuse(b, s) : panels_refuse(b);
    if (why) return why;
    if (blob_checksum(b) != b->checksum) {
        *corrupt = true;
        return "its checksum disagrees";
    }
    return NULL;
}

static void unpack_bytes(const blob *b, int8_t *out, int64_t line_stride, int64_t k_stride)
{
    const b_shape shape = blob_shape(b);
    const int64_t k = b->k, whole = k / 4;
    const residual_k *ks = blob_res_k(b);
    const int8_t *rest = blob_res_w(b);
    for (int64_t p = 0; p < blob_panels(b); p++) {
        const int cols = blob_cols(b, p);
        const int8_t *panel = blob_panel(b, p);
        const residual_span s = b->spans ? blob_spans(b, p)[0] : (residual_span){ 0, 0 };
        for (int j = 0; j < cols; j++) {
            const int64_t at = b_line(&shape, p * NR + j);
            if (at < 0) continue;
            int8_t *line = out + at * line_stride;
            for (int64_t i = 0; i < k; i++)
                line[i * k_stride] = i < 4 * whole ? panel[4 * cols * (i / 4) + 4 * j + i % 4]
                                                   : panel[4 * cols * whole + (k % 4) * j + i % 4];
            for (uint32_t i = 4 * s.first; i < 4 * (s.first + s.quads); i++) {
                int8_t *v = &line[(4 * ks[i].quad + ks[i].pick / 32) * k_stride];
                *v = (int8_t)(*v + rest[RES_W * (i / 4) + 4 * (uint32_t)j + i % 4]);
            }
        }
    }
}

void unpack_b(const blob *b, void *out, int64_t line_stride, int64_t k_stride)
{
    const b_shape s = blob_shape(b);
    if (b->floating) unpack_float(b, &s, out, line_stride, k_stride);
    else unpack_bytes(b, out, line_stride, k_stride);
}
