/* Counts what a program does that opens, reads and closes files; and is that program.
 *
 * `zread_calls count PROGRAM ARGUMENTS` runs PROGRAM with LD_PRELOAD as QUIRE_TEST_PRELOAD says and prints how often its first thread has made
 * which system call between two marks; `zread_calls steps PROGRAM ARGUMENTS`, how many instructions it has run there. Other threads and
 * processes are not counted. A count is the same on a busy machine, unlike a time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_CALLS 1024

static void fail(const char *what) {
    printf("%s failed (errno %d)\n", what, errno);
    fflush(stdout);
    _exit(1);
}

/* Begins and ends what is counted: a signal that the tracer takes, and that is ignored without one. */
static void mark(void) {
    static pid_t self;
    if (self == 0)
        self = getpid();
    syscall(SYS_kill, self, SIGURG);
}

/* Runs the program until it stops, by `request`. Returns why, 0 if it has ended. */
static int go_on(pid_t pid, int request, int signal) {
    int status;
    if (ptrace(request, pid, 0, signal) != 0 || waitpid(pid, &status, __WALL) != pid)
        fail("tracing");
    if (WIFSTOPPED(status))
        return WSTOPSIG(status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail("the program");
    return 0;
}

/* Starts the program, which waits. */
static pid_t start(char **words) {
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        const char *library = getenv("QUIRE_TEST_PRELOAD");
        if (library != NULL)
            setenv("LD_PRELOAD", library, 1);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            fail("PTRACE_TRACEME");
        raise(SIGSTOP);
        execv(words[0], words);
        fail("execv");
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        fail("PTRACE_TRACEME");
    if (ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0)
        fail("PTRACE_SETOPTIONS");
    return pid;
}

static void count(char **words, int by_steps) {
    static unsigned long counts[MOST_CALLS];
    unsigned long steps = 0;
    int is_counted = 0, signal = 0;
    pid_t pid = start(words);
    while ((signal = go_on(pid, is_counted && by_steps ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, signal)) != 0) {
        struct __ptrace_syscall_info info;
        if (signal == SIGURG) {
            is_counted = !is_counted;
        } else if (signal == SIGTRAP) {
            steps += is_counted;
        } else if (signal == (SIGTRAP | 0x80)) {
            if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0)
                fail("PTRACE_GET_SYSCALL_INFO");
            /* The call that makes the second mark has begun before it. */
            if (is_counted && info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr != SYS_kill)
                counts[info.entry.nr % MOST_CALLS]++;
        } else {
            continue;
        }
        signal = 0;
    }
    for (int number = 0; number < MOST_CALLS; number++)
        if (counts[number] > 0)
            printf("%d %lu\n", number, counts[number]);
    if (by_steps)
        printf("%lu\n", steps);
}

/* `read FOLDER FILES TIMES BYTES FLAGS`: opens one file after the other, reads it to its end by so many bytes, and closes it. */
static void read_files(char **words) {
    long files = atol(words[1]), times = atol(words[2]), len = atol(words[3]), flags = atol(words[4]);
    char *buffer = malloc(len), path[4096];
    memset(buffer, 1, len);
    mark();
    for (long i = 0; i < times; i++) {
        snprintf(path, sizeof path, "%s/%ld", words[0], i % files);
        int file = open(path, flags);
        if (file < 0)
            fail("open");
        while (read(file, buffer, len) > 0)
            ;
        close(file);
    }
    mark();
    free(buffer);
}

int main(int number, char **words) {
    if (number > 2 && strcmp(words[1], "count") == 0)
        count(words + 2, 0);
    else if (number > 2 && strcmp(words[1], "steps") == 0)
        count(words + 2, 1);
    else if (number == 7 && strcmp(words[1], "read") == 0)
        read_files(words + 2);
    else
        return 2;
    return 0;
}
