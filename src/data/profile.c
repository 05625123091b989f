/* Colour profiles, by Little CMS. */
#include "data/profile_internal.h"

#include "data/notes_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include <lcms2.h>

cod_profile_space cod_profile_space_of(const void *profile, size_t bytes)
{
    cmsHPROFILE opened = bytes <= UINT32_MAX ? cmsOpenProfileFromMem(profile, (cmsUInt32Number)bytes) : NULL;
    if (opened == NULL)
        return COD_PROFILE_DAMAGED;
    const cmsColorSpaceSignature space = cmsGetColorSpace(opened);
    cmsCloseProfile(opened);
    switch (space) {
    case cmsSigRgbData:
        return COD_PROFILE_RGB;
    case cmsSigGrayData:
        return COD_PROFILE_GRAY;
    case cmsSigCmykData:
        return COD_PROFILE_CMYK;
    default:
        return COD_PROFILE_DAMAGED;
    }
}

/** Closes a profile and returns its bytes. @param[out] bytes  new; free() */
static cod_status save(cmsHPROFILE profile, void **bytes, size_t *count)
{
    cmsUInt32Number needed = 0;
    bool saved = profile != NULL && cmsSaveProfileToMem(profile, NULL, &needed);
    *bytes = saved ? malloc(needed) : NULL;
    *count = needed;
    saved = *bytes != NULL && cmsSaveProfileToMem(profile, *bytes, &needed);
    if (profile != NULL)
        cmsCloseProfile(profile);
    if (saved)
        return COD_OK;
    free(*bytes);
    *bytes = NULL;
    return cod_fail(COD_ERR_UNSUPPORTED,
                    "Little CMS cannot make a profile of these colours; convert the picture to sRGB");
}

static const cmsCIExyY srgb_white = {0.3127, 0.3290, 1};
static const cmsCIExyYTRIPLE srgb_primaries = {{0.64, 0.33, 1}, {0.30, 0.60, 1}, {0.15, 0.06, 1}};

cod_status cod_profile_from_gray(const void *gray, size_t bytes, void **profile, size_t *profile_bytes)
{
    cmsHPROFILE opened = cmsOpenProfileFromMem(gray, (cmsUInt32Number)bytes);
    cmsToneCurve *curve = opened != NULL ? cmsReadTag(opened, cmsSigGrayTRCTag) : NULL;
    cmsToneCurve *const curves[3] = {curve, curve, curve};
    const cod_status status =
        curve != NULL ? save(cmsCreateRGBProfile(&srgb_white, &srgb_primaries, curves), profile, profile_bytes)
                      : cod_fail(COD_ERR_UNSUPPORTED,
                                 "a colour profile of gray without a tone curve; convert the picture to sRGB");
    if (opened != NULL)
        cmsCloseProfile(opened);
    return status;
}

cod_status cod_profile_from_gamma(double gamma, const double xy[8], void **profile, size_t *profile_bytes)
{
    const cmsCIExyY white = {xy[0], xy[1], 1};
    const cmsCIExyYTRIPLE primaries = {{xy[2], xy[3], 1}, {xy[4], xy[5], 1}, {xy[6], xy[7], 1}};
    cmsToneCurve *curve = cmsBuildGamma(NULL, gamma);
    cmsToneCurve *const curves[3] = {curve, curve, curve};
    const cod_status status =
        save(curve != NULL ? cmsCreateRGBProfile(&white, &primaries, curves) : NULL, profile, profile_bytes);
    if (curve != NULL)
        cmsFreeToneCurve(curve);
    return status;
}

/** @param[out] rgb  of the picture's size */
static bool transform(const cod_image *cmyk, const void *profile, size_t bytes, bool inverted, cod_image *rgb)
{
    const bool narrow = cmyk->bits == 8;
    const cmsUInt32Number from = narrow ? (inverted ? TYPE_CMYK_8_REV : TYPE_CMYK_8)
                                        : (inverted ? TYPE_CMYK_16_REV : TYPE_CMYK_16),
                          to = narrow ? TYPE_RGB_8 : TYPE_RGB_16;
    cmsHPROFILE source = cmsOpenProfileFromMem(profile, (cmsUInt32Number)bytes), target = cmsCreate_sRGBProfile();
    cmsHTRANSFORM made =
        source != NULL && target != NULL ? cmsCreateTransform(source, from, target, to, INTENT_PERCEPTUAL, 0) : NULL;
    const size_t width = (size_t)cmyk->width, in_row = cod_image_bytes(cmyk) / (size_t)cmyk->height,
                 out_row = cod_image_bytes(rgb) / (size_t)rgb->height;
    for (size_t y = 0; made != NULL && y < (size_t)cmyk->height; y++)
        cmsDoTransform(made, (const char *)cmyk->pixels + y * in_row, (char *)rgb->pixels + y * out_row,
                       (cmsUInt32Number)width);
    const bool done = made != NULL;
    if (made != NULL)
        cmsDeleteTransform(made);
    if (source != NULL)
        cmsCloseProfile(source);
    if (target != NULL)
        cmsCloseProfile(target);
    return done;
}

cod_status cod_image_cmyk_to_rgb(cod_image *image, const void *profile, size_t bytes, bool inverted)
{
    cod_image rgb;
    COD_TRY(cod_image_init(&rgb, image->width, image->height, 3, image->bits));
    const bool done = transform(image, profile, bytes, inverted, &rgb);
    rgb.notes = image->notes;
    image->notes = NULL;
    cod_image_clear(image);
    *image = rgb;
    return done ? COD_OK
                : cod_fail(COD_ERR_UNSUPPORTED,
                           "a colour profile of CMYK that Little CMS cannot use; convert the picture to RGB");
}

void cod_profile_library(char *text, size_t bytes)
{
    const int version = cmsGetEncodedCMMversion();
    snprintf(text, bytes, "Little CMS %d.%d", version / 1000, version % 1000 / 10);
}
