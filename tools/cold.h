/* Included before each C file that mypyc generates: what these functions are called from is code that handles errors.
   The compiler then moves it away from the code that usually runs, which needs less of the processor's caches. */
struct _object; /* PyObject */

static void CPy_DecRef(struct _object *object) __attribute__((cold));
static void CPy_XDecRef(void *object) __attribute__((cold));
void CPyError_OutOfMemory(void) __attribute__((cold));
void CPy_AddTraceback(const char *file, const char *function, int line, struct _object *globals) __attribute__((cold));
void CPy_Raise(struct _object *exception) __attribute__((cold));
void CPy_TypeError(const char *expected, struct _object *value) __attribute__((cold));
