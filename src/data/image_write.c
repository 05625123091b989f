#include "data/image_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *endings[3];
    cod_image_encoder encode;
} formats[COD_IMAGE_FORMATS] = {
    [COD_IMAGE_PNG] = {{".png"}, cod_png_encode},
    [COD_IMAGE_JPEG] = {{".jpg", ".jpeg"}, cod_jpeg_encode},
    [COD_IMAGE_WEBP] = {{".webp"}, cod_webp_encode},
};

cod_image_format cod_image_format_of(const char *path)
{
    const char *ending = strrchr(path, '.');
    for (int f = 0; ending != NULL && f < COD_IMAGE_FORMATS; f++)
        for (int i = 0; formats[f].endings[i] != NULL; i++)
            if (strcasecmp(ending, formats[f].endings[i]) == 0)
                return (cod_image_format)f;
    return COD_IMAGE_FORMATS;
}

static cod_status encode(FILE *file, const cod_image *image, cod_image_format format, int quality)
{
    cod_image copy = {0};
    const int channels = format == COD_IMAGE_JPEG ? 3 : image->channels;
    const bool as_it_is = format == COD_IMAGE_PNG || (image->bits == 8 && image->channels == channels);
    cod_status status = as_it_is ? COD_OK : cod_image_narrow(image, channels, &copy);
    copy.notes = image->notes; /* lent */
    COD_THEN(status, formats[format].encode(file, as_it_is ? image : &copy, quality));
    copy.notes = NULL;
    cod_image_clear(&copy);
    return status;
}

cod_status cod_image_encode(const cod_image *image, cod_image_format format, int quality, void **bytes, size_t *count)
{
    char *text = NULL;
    *bytes = NULL;
    FILE *file = open_memstream(&text, count);
    COD_REQUIRE_MEMORY(file);
    cod_status status = encode(file, image, format, quality);
    if (fclose(file) != 0 && status == COD_OK)
        status = cod_fail(COD_ERR_MEMORY, "no memory for a picture's file");
    if (status == COD_OK)
        *bytes = text;
    else
        free(text);
    return status;
}

static cod_status write_file(FILE *file, const cod_image *image, cod_image_format format, int quality)
{
    COD_TRY(encode(file, image, format, quality));
    if (fflush(file) != 0 || (fsync(fileno(file)) != 0 && errno != EINVAL))
        return cod_fail(COD_ERR_IO, "cannot write: %s", strerror(errno));
    return COD_OK;
}

/** Creates "folder/.name.PID-N.tmp" with the rights of any new file; N steps over what a crashed process left. */
static int create_temporary(const char *path, size_t folder_length, char *temporary, size_t room)
{
    enum { ATTEMPTS = 1000 };
    int file = -1;
    for (int n = 0; n < ATTEMPTS && file < 0; n++) {
        snprintf(temporary, room, "%.*s.%s.%ld-%d.tmp", (int)folder_length, path, path + folder_length, (long)getpid(),
                 n);
        file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST)
            break;
    }
    return file;
}

/** Makes a rename last through a power cut, where the file system can; `folder` is "" for the working directory. */
static cod_status sync_folder(const char *folder)
{
    const int file = open(folder[0] ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return errno == EACCES ? COD_OK : cod_fail(COD_ERR_IO, "cannot open the folder: %s", strerror(errno));
    const bool failed = fsync(file) != 0 && errno != EINVAL && errno != ENOTSUP;
    const cod_status status = failed ? cod_fail(COD_ERR_IO, "cannot flush the folder: %s", strerror(errno)) : COD_OK;
    close(file);
    return status;
}

static cod_status write_whole(const char *path, size_t folder_length, char *temporary, size_t room,
                              const cod_image *image, cod_image_format format, int quality)
{
    const int descriptor = create_temporary(path, folder_length, temporary, room);
    if (descriptor < 0)
        return cod_fail(COD_ERR_IO, "cannot create: %s", strerror(errno));
    FILE *file = fdopen(descriptor, "wb");
    cod_status status = COD_OK;
    if (file == NULL) {
        status = cod_fail(COD_ERR_IO, "cannot write: %s", strerror(errno));
        close(descriptor);
    } else {
        status = write_file(file, image, format, quality);
        if (fclose(file) != 0 && status == COD_OK)
            status = cod_fail(COD_ERR_IO, "cannot write: %s", strerror(errno));
    }
    if (status == COD_OK && rename(temporary, path) != 0)
        status = cod_fail(COD_ERR_IO, "cannot replace: %s", strerror(errno));
    if (status != COD_OK) {
        unlink(temporary);
        return status;
    }
    temporary[folder_length] = '\0';
    return sync_folder(temporary);
}

cod_status cod_image_write(const char *path, const cod_image *image, cod_image_format format, int quality)
{
    COD_REQUIRE(format >= 0 && format < COD_IMAGE_FORMATS, "%s: no format to write", path);
    COD_REQUIRE(quality >= 1 && quality <= COD_IMAGE_BEST_QUALITY, "%s: a quality of %d is not from 1 to %d", path,
                quality, COD_IMAGE_BEST_QUALITY);
    COD_REQUIRE(image->pixels != NULL && image->width > 0 && image->height > 0, "%s: no picture to write", path);
    const char *slash = strrchr(path, '/');
    const size_t folder_length = slash ? (size_t)(slash - path) + 1 : 0, room = strlen(path) + 64;
    COD_REQUIRE(path[folder_length] != '\0', "'%s' names no file", path);
    /* Renaming over a device or a folder would replace it. */
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return cod_fail(COD_ERR_IO, "%s: cannot write: it is %s", path,
                        S_ISDIR(info.st_mode) ? "a folder" : "no regular file");
    char *temporary = malloc(room);
    COD_REQUIRE_MEMORY(temporary);
    const cod_status status = write_whole(path, folder_length, temporary, room, image, format, quality);
    free(temporary);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

cod_status cod_image_write_png(const char *path, const cod_image *image)
{
    return cod_image_write(path, image, COD_IMAGE_PNG, COD_IMAGE_BEST_QUALITY);
}
