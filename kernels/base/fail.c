/* The last failure of each thread, as a sentence. */
#include <stdarg.h>
#include <stdio.h>

#include "base.h"

static _Thread_local char why[320];

octet_status fail(octet_status status, const char *sentence, ...)
{
    va_list ap;
    va_start(ap, sentence);
    vsnprintf(why, sizeof why, sentence, ap);
    va_end(ap);
    return status;
}

const char *octet_why(void) { return why; }

const char *octet_status_name(octet_status s)
{
    static const char *const names[] = {
        [OCTET_OK] = "OCTET_OK",
        [OCTET_EINVAL] = "OCTET_EINVAL",
        [OCTET_ENOMEM] = "OCTET_ENOMEM",
        [OCTET_EUNSUPPORTED] = "OCTET_EUNSUPPORTED",
        [OCTET_EDEVICE] = "OCTET_EDEVICE",
        [OCTET_ECORRUPT] = "OCTET_ECORRUPT",
    };
    return (unsigned)s < COUNT(names) ? names[s] : "not an octet_status";
}

int octet_version(void)
{
    return 10000 * OCTET_VERSION_MAJOR + 100 * OCTET_VERSION_MINOR + OCTET_VERSION_PATCH;
}
