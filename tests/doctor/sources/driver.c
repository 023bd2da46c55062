/* A driver library that starts with the code it is told: CUDA's functions give $FAKE_CUINIT, the version is
   $FAKE_CUDA. It has as many devices as $FAKE_DEVICES says and can do nothing with them. */
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags) { (void)flags; return number("FAKE_CUINIT", 0); }
int cuDriverGetVersion(int *version) { *version = number("FAKE_CUDA", 12040); return 0; }
int cuDeviceGetCount(int *count) { *count = number("FAKE_DEVICES", 0); return 0; }
int cuGetExportTable(const void **table, const void *id) { (void)id; *table = 0; return number("FAKE_CUINIT", 500); }
static int refuse(void) { return number("FAKE_CUINIT", 500); }

static void *named(const char *name) {
    if (!strcmp(name, "cuInit")) return (void *)cuInit;
    if (!strcmp(name, "cuDriverGetVersion")) return (void *)cuDriverGetVersion;
    if (!strcmp(name, "cuDeviceGetCount")) return (void *)cuDeviceGetCount;
    if (!strcmp(name, "cuGetExportTable")) return (void *)cuGetExportTable;
    return (void *)refuse;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    (void)version, (void)flags;
    if (status) *status = 0;
    *function = strncmp(name, "cuGetProcAddress", 16) ? named(name) : (void *)cuGetProcAddress_v2;
    return 0;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, 0);
}
