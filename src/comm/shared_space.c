#include "comm/shared_space.h"

#include "core/folder_entry.h"
#include "core/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 320, YOUNG_S = 60 };

static bool begins_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/** Whether a file is named as Open MPI names what ranks of this host share. */
static bool is_of_open_mpi(const char *name, const char *host)
{
    static const char *const kinds[] = {"vader_segment.", "sm_segment.", "osc_rdma.", "osc_sm."};
    const size_t length = strcspn(host, ".");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *behind = name + strlen(kinds[i]);
        if (begins_with(name, kinds[i]) && strncmp(behind, host, length) == 0 && behind[length] == '.')
            return true;
    }
    return false;
}

/** Whether it is this user's, and so old that the process that made it would have mapped it by now. */
static bool is_old_and_own(const char *path, struct stat *info)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* that of the file system */
    return lstat(path, info) == 0 && S_ISREG(info->st_mode) && info->st_uid == geteuid() &&
           now.tv_sec - info->st_mtime >= YOUNG_S;
}

/**
 * Whether a process that shares the folder may be out of sight: this one is in a container that has the host's
 * /dev/shm, but not its processes. The numbers are those of the first namespaces of a running kernel.
 */
static bool may_be_blind(void)
{
    static const char first_pid[] = "pid:[4026531836]", first_ipc[] = "ipc:[4026531839]";
    char pid[64] = "", ipc[64] = "";
    if (readlink("/proc/self/ns/pid", pid, sizeof pid - 1) < 0 ||
        readlink("/proc/self/ns/ipc", ipc, sizeof ipc - 1) < 0)
        return true;
    return strcmp(pid, first_pid) != 0 && strcmp(ipc, first_ipc) == 0;
}

/** Whether a list of mappings names the file. @param unreadable  what is returned where the list cannot be read */
static bool maps(const char *list, const struct stat *info, bool unreadable)
{
    FILE *file = fopen(list, "re");
    char line[512];
    bool found = false;
    if (file == NULL)
        return unreadable && errno != ENOENT && errno != ESRCH; /* it has ended, or is a thread of the kernel */
    while (!found && fgets(line, sizeof line, file) != NULL) {
        unsigned high = 0, low = 0;
        unsigned long long inode = 0;
        found = sscanf(line, "%*s %*s %*s %x:%x %llu", &high, &low, &inode) == 3 && inode == info->st_ino &&
                makedev(high, low) == info->st_dev;
    }
    found = found || (unreadable && ferror(file) != 0);
    fclose(file);
    return found;
}

/** Whether one of this user's processes maps the file. The system's first one may hide what it maps. */
static bool is_mapped(const struct stat *file)
{
    DIR *processes = opendir("/proc");
    const struct dirent *entry = NULL;
    bool found = processes == NULL;
    while (!found) {
        char path[PATH_BYTES];
        struct stat owner;
        found = !cod_folder_next(processes, &entry);
        if (entry == NULL)
            break;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s", entry->d_name);
        if (stat(path, &owner) != 0 || owner.st_uid != geteuid())
            continue;
        snprintf(path, sizeof path, "/proc/%s/maps", entry->d_name);
        found = maps(path, file, strcmp(entry->d_name, "1") != 0);
    }
    if (processes != NULL)
        closedir(processes);
    return found;
}

int cod_shared_space_sweep(const char *folder, const char *host)
{
    int removed = 0;
    DIR *entries = may_be_blind() ? NULL : opendir(folder);
    const struct dirent *entry;
    while (entries != NULL && cod_folder_next(entries, &entry) && entry != NULL) {
        char path[PATH_BYTES];
        struct stat info;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (length < (int)sizeof path && is_of_open_mpi(entry->d_name, host) && is_old_and_own(path, &info) &&
            !is_mapped(&info))
            removed += unlink(path) == 0;
    }
    if (entries != NULL)
        closedir(entries);
    if (removed > 0)
        cod_log_debug("removed %d files of killed jobs from '%s'", removed, folder);
    return removed;
}

bool cod_shared_space_explain(cod_status status, const char *folder, double bytes)
{
    struct statvfs space;
    const double megabyte = 1e6;
    if (statvfs(folder, &space) != 0)
        return false;
    const double unit = (double)space.f_frsize, all = unit * (double)space.f_blocks,
                 left = unit * (double)space.f_bavail;
    if (left >= bytes)
        return false;
    cod_fail_prefix(status,
                    "'%s' has %.4g MB, of which %.4g are free, and the ranks of this host share %.4g there: make it "
                    "larger (in a container by --shm-size=%.0fm or --ipc=host), or set exchange.transport=file",
                    folder, all / megabyte, left / megabyte, bytes / megabyte, 1 + 2 * bytes / megabyte);
    return true;
}
