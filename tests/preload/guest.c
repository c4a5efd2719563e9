/* A program that forks in every way that a preloaded library could get wrong. Prints what it finds; the same must be
   printed with the library and without. Built and run by preload.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };
static unsigned char *memory;
static size_t pages = 20000;

static void rest(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t)) {
    }
}

static int wait_for(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void fill(void) {
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < pages; page++) memset(memory + page * PAGE, (int)(page & 255), PAGE);
}

static unsigned long sum(void) {
    unsigned long total = 0;
    for (size_t at = 0; at < pages * PAGE; at += 64) total = total * 31 + memory[at];
    return total;
}

/* The child sees memory as it was at the fork, however much the parent writes; the parent keeps every write. */
static void snapshots(void) {
    fill();
    for (int round = 0; round < 8; round++) {
        unsigned long before = sum();
        pid_t pid = fork();
        if (pid == 0) {
            rest(60);
            _exit(sum() == before ? 0 : 1);
        }
        unsigned long model = 0;
        for (int pass = 0; pass < 3; pass++)
            for (size_t page = 0; page < pages; page += 1 + (page * 7 + (size_t)round) % 3) {
                memory[page * PAGE + (size_t)pass * 64] += (unsigned char)(page + (size_t)pass);
                model += memory[page * PAGE + (size_t)pass * 64];
            }
        unsigned long now = sum();
        int status = wait_for(pid);
        printf("round %d: child %d, parent %lu %lu %d\n", round, status, model, now, now == sum());
    }
}

/* Several writers and several forkers at once. */
static void *write_on(void *argument) {
    size_t first = (size_t)argument;
    for (int pass = 0; pass < 40; pass++)
        for (size_t page = first; page < pages; page += 4) memory[page * PAGE + 128 + first]++;
    return 0;
}

static void *fork_on(void *argument) {
    (void)argument;
    for (int turn = 0; turn < 10; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            rest(10);
            _exit(7);
        }
        if (wait_for(pid) != 7) printf("a child of a thread went wrong\n");
    }
    return 0;
}

static void threads(void) {
    fill();
    pthread_t writers[4], forkers[3];
    for (size_t i = 0; i < 4; i++) pthread_create(&writers[i], 0, write_on, (void *)i);
    for (size_t i = 0; i < 3; i++) pthread_create(&forkers[i], 0, fork_on, 0);
    for (size_t i = 0; i < 4; i++) pthread_join(writers[i], 0);
    for (size_t i = 0; i < 3; i++) pthread_join(forkers[i], 0);
    size_t wrong = 0;
    for (size_t page = 0; page < pages; page++)
        wrong += memory[page * PAGE + 128 + page % 4] != (unsigned char)((page & 255) + 40);
    printf("wrong pages: %zu\n", wrong);
}

/* Every way for a child to end, and what its parent gets. */
static void at_exit(void) { write(1, "exit handler\n", 13); }

static void ends(char *self) {
    fill();
    for (int way = 0; way < 8; way++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            rest(30);
            if (way == 0) _exit(10);
            if (way == 1) _Exit(11);
            if (way == 2) {
                atexit(at_exit);
                exit(12);
            }
            if (way == 3) quick_exit(13);
            if (way == 4) execl(self, self, "status", "14", (char *)0);
            if (way == 5) abort();
            if (way == 6) {
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    rest(30);
                    _exit(6);
                }
                _exit(wait_for(grandchild));
            }
            pid_t grandchild = vfork();
            if (grandchild == 0) _exit(5);
            _exit(wait_for(grandchild));
        }
        for (size_t page = 0; page < pages; page++) memory[page * PAGE]++;
        printf("way %d: %d\n", way, wait_for(pid));
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) for (;;) rest(1000);
    rest(50);
    kill(pid, SIGKILL);
    printf("killed: %d\n", wait_for(pid));
}

/* errno and file descriptors stay as they would be. */
static int open_files(void) {
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir)) count++;
    closedir(dir);
    return count;
}

static void traces(void) {
    fill();
    int before = open_files();
    for (int turn = 0; turn < 20; turn++) {
        errno = 77;
        pid_t pid = fork();
        if (pid == 0) {
            rest(15);
            _exit(errno == 77 ? 0 : 1);
        }
        int kept = errno;
        close(0);
        int lowest = open("/dev/null", O_RDONLY);
        if (kept != 77 || lowest != 0) printf("errno %d, lowest descriptor %d\n", kept, lowest);
        if (wait_for(pid)) printf("the child's errno was changed\n");
        sigset_t mask;
        sigprocmask(SIG_SETMASK, 0, &mask);
        if (sigismember(&mask, SIGTERM)) printf("signals are blocked\n");
    }
    printf("open files: %d more\n", open_files() - before);
}

/* The first thread leaves; the process ends with its last other thread. */
static void *last(void *argument) {
    (void)argument;
    rest(100);
    printf("the last thread ends\n");
    return 0;
}

static void leaves(void) {
    fill();
    pid_t pid = fork();
    if (pid == 0) {
        rest(30);
        _exit(0);
    }
    wait_for(pid);
    pthread_t thread;
    pthread_create(&thread, 0, last, 0);
    pthread_detach(thread);
    pthread_exit(0);
}

/* A handler that forks while the program is in its allocator. */
static volatile sig_atomic_t handled;

static void handler(int signal) {
    (void)signal;
    int saved = errno;
    pid_t pid = fork();
    if (pid == 0) {
        if (handled % 4 == 0) rest(20);
        _exit(0);
    }
    while (waitpid(pid, 0, 0) < 0) {
    }
    handled++;
    errno = saved;
}

static void handlers(void) {
    fill();
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, 0);
    struct itimerval timer = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &timer, 0);
    while (handled < 30) {
        void *held[64];
        for (int i = 0; i < 64; i++) held[i] = malloc((size_t)(i * 997 % 60000));
        for (int i = 0; i < 64; i++) free(held[i]);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, 0);
    printf("30 forks from a handler\n");
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!strcmp(what, "snapshots")) snapshots();
    if (!strcmp(what, "threads")) threads();
    if (!strcmp(what, "ends")) ends(words[0]);
    if (!strcmp(what, "traces")) traces();
    if (!strcmp(what, "handlers")) handlers();
    if (!strcmp(what, "leaves")) leaves();
    if (!strcmp(what, "status")) return atoi(words[2]);
    return 0;
}
