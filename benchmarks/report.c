/* Rows out, as a table for people, CSV for scripts, JSON for `compare`; and that comparison. */
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "bench.h"

static FILE         *out;
static report_format format;
static int           rows, wide; /* the width of problems in a table */

static void cpu_name(char *name, size_t room)
{
    char line[256];
    snprintf(name, room, "unknown CPU");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10)) {
            char *v = strchr(line, ':');
            if (v) snprintf(name, room, "%.*s", (int)strcspn(v + 2, "\n"), v + 2);
            break;
        }
    if (f) fclose(f);
}

void report_begin(FILE *to, report_format f, const char *command, uint64_t seed)
{
    char cpu[128];
    out = to;
    format = f;
    rows = 0;
    wide = strcmp(command, "embedding") ? 15 : 20;
    cpu_name(cpu, sizeof cpu);
    if (format == REPORT_CSV)
        fprintf(out, "op,impl,kernel,types,problem,threads,check,fmm,cache,verified,time_min_ns,time_median_ns,time_p99_ns,gops,"
                     "gbytes_per_s,percent_of_peak,prepare_us,first_call_us,packed_bytes,workspace_bytes,ratio,ratio_low\n");
    else if (format == REPORT_JSON)
        fprintf(out, "{\"command\":\"%s\",\"cpu\":\"%s\",\"octet\":%d,\"seed\":%llu,\"rows\":[\n", command, cpu, octet_version(),
                (unsigned long long)seed);
    else {
        fprintf(out, "octet %d.%d.%d on %s, seed %llu\n", octet_version() / 10000, octet_version() / 100 % 100, octet_version() % 100,
                cpu, (unsigned long long)seed);
        fprintf(out, "ratio: peer's time over octet's, median of pairs and its lower 95 %% bound; above 1 octet is faster\n\n");
        fprintf(out, "%-9s %-*s %-12s %3s %5s %10s %8s %6s %9s %12s  %s\n", "impl", wide, "problem", "types", "thr", "right", "median us",
                strcmp(command, "embedding") ? "GOPS" : "Mrow/s", "% peak", "pack us", "ratio (low)", "kernel");
    }
}

void report_row(const row *r)
{
    char ratio[40] = "", peak[16] = "", prepare[16] = "";
    if (format == REPORT_TABLE) {
        if (r->ratio > 0) snprintf(ratio, sizeof ratio, "%.2f (%.2f)", r->ratio, r->ratio_low);
        if (r->percent_of_peak > 0) snprintf(peak, sizeof peak, "%.0f", r->percent_of_peak);
        if (r->prepare_us > 0) snprintf(prepare, sizeof prepare, "%.0f", r->prepare_us);
        fprintf(out, "%-9s %-*s %-12s %3d %5s %10.2f %8.1f %6s %9s %12s  %s\n", r->impl, wide, r->problem, r->types, r->threads, r->verified,
                r->median_ns * 1e-3, wide == 15 ? r->gops : 1e3 * r->gops, peak, prepare, ratio, r->kernel);
    } else if (format == REPORT_CSV) {
        fprintf(out, "%s,%s,\"%s\",%s,%s,%d,%s,off,%s,%s,%.1f,%.1f,%.1f,%.4f,%.2f,%.1f,%.1f,%.1f,%zu,%zu,%.4f,%.4f\n", r->op, r->impl,
                r->kernel, r->types, r->problem, r->threads, r->check, r->cache, r->verified, r->min_ns, r->median_ns, r->p99_ns, r->gops,
                r->gbytes, r->percent_of_peak, r->prepare_us, r->first_call_us, r->packed_bytes, r->workspace_bytes, r->ratio, r->ratio_low);
    } else {
        fprintf(out, "%s{\"op\":\"%s\",\"impl\":\"%s\",\"kernel\":\"%s\",\"types\":\"%s\",\"problem\":\"%s\",\"threads\":%d,\"check\":\"%s\","
                     "\"fmm\":\"off\",\"cache\":\"%s\",\"verified\":\"%s\",\"time_min_ns\":%.1f,\"time_median_ns\":%.1f,\"time_p99_ns\":%.1f,"
                     "\"gops\":%.2f,\"gbytes_per_s\":%.2f,\"percent_of_peak\":%.1f,\"prepare_us\":%.1f,\"first_call_us\":%.1f,"
                     "\"packed_bytes\":%zu,\"workspace_bytes\":%zu,\"ratio\":%.4f,\"ratio_low\":%.4f}\n",
                rows ? "," : "", r->op, r->impl, r->kernel, r->types, r->problem, r->threads, r->check, r->cache, r->verified, r->min_ns,
                r->median_ns, r->p99_ns, r->gops, r->gbytes, r->percent_of_peak, r->prepare_us, r->first_call_us, r->packed_bytes,
                r->workspace_bytes, r->ratio, r->ratio_low);
    }
    fflush(out);
    rows++;
}

void report_end(void)
{
    if (format == REPORT_JSON) fprintf(out, "]}\n");
}

/* ---- compare ---- */

enum { ROWS = 4096 };
typedef struct timing { char key[200]; double min, median; } timing;

/* One string or number of a row; rows are one line each, as report_row writes them. */
static void field(const char *line, const char *name, char *value, size_t room)
{
    char want[40];
    *value = 0;
    snprintf(want, sizeof want, "\"%s\":", name);
    const char *p = strstr(line, want);
    if (!p) return;
    p += strlen(want);
    const size_t n = *p == '"' ? strcspn(++p, "\"") : strcspn(p, ",}");
    snprintf(value, room, "%.*s", (int)n, p);
}

static int load(const char *path, timing *t)
{
    static char line[4096];
    FILE *f = fopen(path, "r");
    int n = 0;
    if (!f) return -1;
    while (n < ROWS && fgets(line, sizeof line, f)) {
        char v[8][64], min[32], median[32];
        static const char *const keys[] = { "op", "impl", "types", "problem", "threads", "check", "cache" };
        if (!strstr(line, "\"time_median_ns\"")) continue;
        t[n].key[0] = 0;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            field(line, keys[i], v[i], sizeof v[i]);
            snprintf(t[n].key + strlen(t[n].key), sizeof t[n].key - strlen(t[n].key), "%s%s", i ? " " : "", v[i]);
        }
        field(line, "time_min_ns", min, sizeof min);
        field(line, "time_median_ns", median, sizeof median);
        t[n].min = strtod(min, NULL);
        t[n++].median = strtod(median, NULL);
    }
    fclose(f);
    return n;
}

int report_compare(const char *old_path, const char *new_path)
{
    static timing was[ROWS], is[ROWS];
    const int a = load(old_path, was), b = load(new_path, is);
    int slower = 0, matched = 0;
    if (a <= 0 || b <= 0) {
        fprintf(stderr, "octet-bench compare: no rows in %s\n", a <= 0 ? old_path : new_path);
        return 2;
    }
    printf("%-60s %10s %10s %7s %7s\n", "row", "old us", "new us", "new/old", "noise");
    for (int i = 0; i < b; i++)
        for (int j = 0; j < a; j++)
            if (!strcmp(is[i].key, was[j].key) && was[j].median > 0) {
                /* what each run's own spread between its best and its median allows */
                const double noise = (is[i].median / is[i].min - 1) + (was[j].median / was[j].min - 1) + 0.01;
                const double change = is[i].median / was[j].median;
                const bool bad = change > 1 + noise;
                printf("%-60s %10.2f %10.2f %7.3f %6.1f%%%s\n", is[i].key, was[j].median * 1e-3, is[i].median * 1e-3, change, 100 * noise,
                       bad ? "  SLOWER" : "");
                slower += bad;
                matched++;
                break;
            }
    printf("%d rows compared, %d slower beyond the noise\n", matched, slower);
    return matched ? slower > 0 : 2;
}
