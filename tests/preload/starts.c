/* Programs that start, load and become others in unusual ways, with the preload library in them. Prints what it finds; the same must
   be printed with the library and without. Built and run by starts.py, also as a shared library (-DPLUGIN) and a static program. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8000 };
extern char **environ;

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

/* What a plugin does with the program's functions: it allocates, forks, and ends children. */
int plugin_works(int turn) {
    char *bytes = malloc((size_t)(1000 + turn));
    memset(bytes, turn, (size_t)(1000 + turn));
    bytes = realloc(bytes, 100000);
    pid_t pid = fork();
    if (pid == 0) {
        rest(5);
        _exit(bytes[999] == (char)turn ? 7 : 1);
    }
    int status = wait_for(pid);
    free(bytes);
    return status;
}

#ifndef PLUGIN
static unsigned char *memory;
static char *self;

static void write_all(void) {
    for (size_t page = 0; page < PAGES; page++) memory[page * PAGE]++;
}

static void fill(void) {
    memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < PAGES; page++) memset(memory + page * PAGE, (int)(page & 255), PAGE);
}

static pid_t child_for(int ms, int status) {
    pid_t pid = fork();
    if (pid == 0) {
        rest(ms);
        _exit(status);
    }
    return pid;
}

/* Loads a plugin that forks, and unloads it, while a child lives. */
static void plugins(char *path) {
    fill();
    pid_t pid = child_for(300, 2);
    rest(30);
    for (int turn = 1; turn < 12; turn++) {
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!plugin) {
            printf("%s\n", dlerror());
            return;
        }
        int (*works)(int) = (int (*)(int))dlsym(plugin, "plugin_works");
        printf("plugin: %d\n", works(turn));
        printf("closed: %d\n", dlclose(plugin));
        write_all();
    }
    printf("first: %d\n", wait_for(pid));
}

/* Loads a library that is meant to be preloaded, late, and unloads it again. */
static void late(char *path) {
    fill();
    for (int turn = 0; turn < 6; turn++) {
        void *library = dlopen(path, turn % 2 ? RTLD_NOW | RTLD_GLOBAL : RTLD_LAZY);
        if (!library) {
            printf("%s\n", dlerror());
            return;
        }
        pid_t pid = child_for(20, turn);
        write_all();
        printf("child: %d\n", wait_for(pid));
        pid = child_for(20, turn);
        printf("closed: %d\n", dlclose(library));
        write_all();
        printf("child: %d\n", wait_for(pid));
    }
}

/* Starts another program in three ways, while a child lives. */
static void starts(char *program, char *preloaded) {
    fill();
    pid_t first = child_for(400, 2);
    rest(30);
    char *words[] = {program, "environment", preloaded, 0};
    for (int turn = 0; turn < 3; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            execve(program, words, environ);
            _exit(100 + errno);
        }
        write_all();
        printf("exec: %d\n", wait_for(pid));
        pid = vfork();
        if (pid == 0) {
            execve(program, words, environ);
            _exit(100 + errno);
        }
        printf("vfork: %d\n", wait_for(pid));
        int error = posix_spawn(&pid, program, 0, 0, words, environ);
        printf("spawn: %d %d\n", error, error ? 0 : wait_for(pid));
    }
    printf("first: %d\n", wait_for(first));
}

/* What a program that was started finds. */
static int environment(const char *preloaded) {
    const char *found = getenv("LD_PRELOAD"), *test = getenv("QUIRE_TEST");
    struct sigaction action;
    sigset_t mask;
    sigprocmask(SIG_SETMASK, 0, &mask);
    sigaction(SIGCHLD, 0, &action);
    printf("environment: %d %s, user %d, masked %d, handled %d\n", !strcmp(found ? found : "", preloaded), test ? test : "none",
           (int)geteuid(), sigismember(&mask, SIGTERM), action.sa_handler != SIG_DFL);
    return 5;
}

/* A program that becomes itself again and again, most times just after a fork. */
static void becomes(int turn, pid_t known) {
    if (known) {
        kill(known, SIGKILL);
        if (wait_for(known) != 1000 + SIGKILL) printf("turn %d: another child than it was\n", turn);
    }
    if (turn == 60) {
        printf("60 times\n");
        return;
    }
    fill();
    pid_t pid = turn % 3 == 2 ? 0 : child_for(5000, 0);
    if (turn % 3 == 0) rest(20);
    char next[16], number[16];
    snprintf(next, sizeof next, "%d", turn + 1);
    snprintf(number, sizeof number, "%d", (int)pid);
    execl(self, self, "becomes", next, number, (char *)0);
}

/* All descriptors are closed while a child lives, by number and by range; those that are opened get the lowest numbers. */
static void closes(void) {
    fill();
    int report = dup2(1, 700);
    for (int turn = 0; turn < 6; turn++) {
        pid_t pid = child_for(80, turn);
        rest(20);
        if (turn % 2) closefrom(701);
        for (int number = 0; number < 700; number++) close(number);
        int zero = open("/dev/null", O_RDWR), one = open("/dev/null", O_RDWR), two = open("/dev/null", O_RDWR);
        write_all();
        char line[80];
        int count = snprintf(line, sizeof line, "child: %d, lowest: %d %d %d\n", wait_for(pid), zero, one, two);
        if (write(report, line, (size_t)count) < 0) _exit(1);
        struct stat facts;
        for (int number = 3; number < 1024; number++) {
            if (number != report && !fstat(number, &facts)) _exit(2);
        }
    }
    closefrom(0);
    pid_t pid = child_for(30, 4);
    write_all();
    _exit(wait_for(pid));
}

/* Two forks make a daemon, whose own children then are as any. */
static void daemons(void) {
    fill();
    int report[2];
    if (pipe(report)) return;
    for (int turn = 0; turn < 4; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            setsid();
            if (turn % 2) rest(20);
            pid = fork();
            if (pid) _exit(pid < 0);
            write_all();
            int status = wait_for(child_for(60, 3));
            char line[40];
            int count = snprintf(line, sizeof line, "daemon %d: %d\n", turn, status);
            _exit(write(report[1], line, (size_t)count) < 0);
        }
        write_all();
        printf("first: %d\n", wait_for(pid));
        char text[80];
        ssize_t count = read(report[0], text, sizeof text);
        printf("%.*s", (int)(count < 0 ? 0 : count), text);
    }
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    self = words[0];
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!strcmp(what, "plugins")) plugins(words[2]);
    if (!strcmp(what, "late")) late(words[2]);
    if (!strcmp(what, "starts")) starts(words[2], words[3]);
    if (!strcmp(what, "environment")) return environment(words[2]);
    if (!strcmp(what, "becomes")) becomes(count > 2 ? atoi(words[2]) : 0, count > 3 ? atoi(words[3]) : 0);
    if (!strcmp(what, "closes")) closes();
    if (!strcmp(what, "daemons")) daemons();
    return 0;
}
#endif
